// The frontend's entry: everything Paceline shows in the browser is registered here.
//
// ComfyUI imports every .js file under web/ by itself, in no particular order. Only this one does something when it is
// imported; the modules in js/ only define things.

import { app, hidePictures } from "./js/frontend/comfy.js";
import { foldAdvanced, switchIgnored } from "./js/frontend/inputs.js";
import { createBadges } from "./js/badges/badges.js";
import { foretell } from "./js/badges/before.js";
import { startChips } from "./js/speed/chips.js";
import { compareSettings, listen } from "./js/badges/events.js";
import { createExpandCommand, expandMenuItems, expandToolbox } from "./js/frontend/expand.js";
import { createFasterCommand, fasterButtons } from "./js/faster/faster_command.js";
import { keepOutcomes } from "./js/speed/outcomes.js";
import { drawOverlay } from "./js/badges/overlay.js";
import { createReportCommand } from "./js/badges/report.js";
import { createResults, showsOwnPictures } from "./js/badges/results.js";
import { createSettings } from "./js/frontend/settings.js";
import { createSpeedTab } from "./js/speed/speed_tab.js";
import { ActivityStore } from "./js/badges/activity_store.js";
import { Timeline } from "./js/speed/timeline.js";
import { languageChanges, loadWords } from "./js/frontend/language.js";

const store = new ActivityStore();
const timeline = new Timeline();
const badges = createBadges(store, timeline);
const shown = [badges, ...createResults(store)];

// Does nothing before the page is set up.
let showChips = () => {};
let askBefore = () => {};

for (const name of ["paceline.css", "results.css", "speed.css", "faster.css"]) {
  const href = new URL(name, import.meta.url).href;
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href }));
}

app.registerExtension({
  name: "Paceline",
  commands: [createFasterCommand(timeline), createReportCommand(store, timeline), createExpandCommand(store)],
  menuCommands: [{ path: ["Extensions", "Paceline"], commands: ["Paceline.MakeFaster", "Paceline.Report"] }],
  bottomPanelTabs: [createSpeedTab(timeline, store)],
  settings: createSettings(() => {
    badges.refresh();
    showChips();
  }),
  async setup() {
    await loadWords();
    // A button keeps the words that it begins with.
    app.registerExtension({ name: "Paceline.ActionBar", actionBarButtons: fasterButtons(timeline) });
    listen(store);
    timeline.listen();
    keepOutcomes(timeline);
    /** @type {Chips} */
    const chips = new Map();
    showChips = startChips(timeline, store, chips);
    showChips();
    for (const kind of shown) kind.start();
    drawOverlay(store, chips);
    askBefore = foretell(store);
    languageChanges.addEventListener("change", () => timeline.changed());
  },
  getNodeMenuItems(node) {
    return expandMenuItems(node, store);
  },
  getSelectionToolboxCommands: expandToolbox,
  nodeCreated(node) {
    switchIgnored(node);
    if (showsOwnPictures(node)) hidePictures(node);
    foldAdvanced(node);
  },
  afterConfigureGraph() {
    for (const kind of shown) kind.refresh();
    showChips();
    compareSettings(store);
    askBefore();
  },
});
