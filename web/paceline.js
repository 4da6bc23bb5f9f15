// The frontend's entry: everything Paceline shows in the browser is registered here.
//
// ComfyUI imports every .js file under web/ by itself, in no particular order. Only this one does something when it is
// imported; the modules in js/ only define things.

import { app } from "./js/comfy.js";
import { applyDefaultPreset } from "./js/preset.js";
import { createBadges } from "./js/badges.js";
import { convertMenuItems } from "./js/convert.js";
import { listen } from "./js/events.js";
import { expandMenuItems } from "./js/expand.js";
import { createReportCommand } from "./js/report.js";
import { createComparisons, createReports } from "./js/results.js";
import { createSettings } from "./js/settings.js";
import { ActivityStore } from "./js/store.js";
import { rememberWidgetNames } from "./js/versions.js";
import { loadWords } from "./js/words.js";

const store = new ActivityStore();
const badges = createBadges(store);
const shown = [badges, createComparisons(store), createReports(store)];

const style = document.createElement("link");
style.rel = "stylesheet";
style.href = new URL("paceline.css", import.meta.url).href;
document.head.append(style);

app.registerExtension({
  name: "Paceline",
  commands: [createReportCommand(store)],
  menuCommands: [{ path: ["Extensions", "Paceline"], commands: ["Paceline.Report"] }],
  settings: createSettings(() => badges.refresh()),
  async setup() {
    await loadWords();
    listen(store);
    for (const kind of shown) kind.start();
  },
  getNodeMenuItems(node) {
    return [...expandMenuItems(node, store), ...convertMenuItems(node)];
  },
  beforeRegisterNodeDef(nodeType, nodeData) {
    rememberWidgetNames(nodeType, nodeData.name);
  },
  nodeCreated(node) {
    applyDefaultPreset(node);
  },
  afterConfigureGraph() {
    for (const kind of shown) kind.refresh();
  },
});
