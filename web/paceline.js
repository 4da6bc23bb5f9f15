// The frontend's entry: everything Paceline shows in the browser is registered here.
//
// ComfyUI imports every .js file under web/ by itself, in no particular order. Only this one does something when it is
// imported; the modules in js/ only define things.

import { app, hidePictures } from "./js/comfy.js";
import { foldAdvanced, switchIgnored } from "./js/inputs.js";
import { createBadges } from "./js/badges.js";
import { foretell } from "./js/before.js";
import { startChips } from "./js/chips.js";
import { compareSettings, listen } from "./js/events.js";
import { createExpandCommand, expandMenuItems, expandToolbox } from "./js/expand.js";
import { createFasterCommand, fasterButtons, fasterMenuItems } from "./js/faster_command.js";
import { keepOutcomes } from "./js/outcomes.js";
import { drawOverlay } from "./js/overlay.js";
import { testPromises } from "./js/promises.js";
import { createReportCommand } from "./js/report.js";
import { createResults, showsOwnPictures } from "./js/results.js";
import { createSettings } from "./js/settings.js";
import { createSpeedTab } from "./js/speed_tab.js";
import { ActivityStore } from "./js/store.js";
import { Timeline } from "./js/timeline.js";
import { languageChanges, loadWords } from "./js/words.js";

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
    showChips = startChips(timeline, store);
    testPromises(timeline, store);
    showChips();
    for (const kind of shown) kind.start();
    drawOverlay(store);
    askBefore = foretell(store);
    languageChanges.addEventListener("change", () => timeline.changed());
  },
  getNodeMenuItems(node) {
    return [...fasterMenuItems(node, timeline), ...expandMenuItems(node, store)];
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
