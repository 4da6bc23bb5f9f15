// The frontend's entry: everything Paceline shows in the browser is registered here.
//
// ComfyUI imports every .js file under web/ by itself, in no particular order. Only this one does something when it is
// imported; the modules in js/ only define things.

import { app, hidePictures } from "./js/frontend/comfy.js";
import { foldAdvanced, switchIgnored } from "./js/frontend/inputs.js";
import { createBadges } from "./js/badges/badges.js";
import { foretell } from "./js/badges/before.js";
import { createChips, watchSamplers } from "./js/speed/chips.js";
import { compareSettings, listen } from "./js/badges/events.js";
import { expandMenuItems } from "./js/frontend/expand.js";
import { makeFaster } from "./js/faster/faster.js";
import { keepOutcomes } from "./js/speed/outcomes.js";
import { drawOverlay } from "./js/badges/overlay.js";
import { openReport } from "./js/badges/report.js";
import { createResults } from "./js/badges/results.js";
import { comfyClassOf } from "./js/frontend/graph.js";
import { createSettings } from "./js/frontend/settings.js";
import { createSpeedTab } from "./js/speed/speed_tab.js";
import { ActivityStore } from "./js/badges/activity_store.js";
import { Timeline } from "./js/speed/timeline.js";
import { languageChanges, loadWords, words } from "./js/frontend/language.js";

const store = new ActivityStore();
const timeline = new Timeline();
const shown = [createBadges(store), createChips(store), ...createResults(store)];
const refresh = () => shown.forEach((kind) => kind.refresh());

// Does nothing before the page is set up.
let askBefore = () => {};

for (const name of ["paceline.css", "results.css", "speed.css", "faster.css"]) {
  const href = new URL(name, import.meta.url).href;
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href }));
}

app.registerExtension({
  name: "Paceline",
  commands: [
    {
      id: "Paceline.MakeFaster",
      label: "Paceline: make this workflow faster",
      icon: "pi pi-forward",
      function: () => makeFaster(timeline),
    },
    {
      id: "Paceline.Report",
      label: "Paceline: report",
      icon: "pi pi-gauge",
      function: () => openReport(store),
    },
  ],
  menuCommands: [{ path: ["Extensions", "Paceline"], commands: ["Paceline.MakeFaster", "Paceline.Report"] }],
  bottomPanelTabs: [createSpeedTab(timeline, store)],
  settings: createSettings(refresh),
  async setup() {
    await loadWords();
    // A button keeps the words that it begins with.
    const faster = { icon: "pi pi-forward", tooltip: words("faster_title"), onClick: () => void makeFaster(timeline) };
    app.registerExtension({ name: "Paceline.ActionBar", actionBarButtons: [faster] });
    listen(store);
    timeline.listen();
    keepOutcomes(timeline);
    watchSamplers(timeline, store);
    for (const kind of shown) kind.start();
    drawOverlay(store);
    askBefore = foretell(store);
    languageChanges.addEventListener("change", () => timeline.changed());
  },
  getNodeMenuItems(node) {
    return expandMenuItems(node);
  },
  nodeCreated(node) {
    switchIgnored(node);
    if (comfyClassOf(node) === "PacelineCompareModels") hidePictures(node); // they are in its comparison
    foldAdvanced(node);
  },
  afterConfigureGraph() {
    refresh();
    compareSettings(store);
    askBefore();
  },
});
