// The frontend's entry: everything Paceline shows in the browser is registered here.
//
// ComfyUI imports every .js file under web/ by itself, in no particular order. Only this one does something when it is
// imported; the modules in js/ only define things.

import { app } from "./js/comfy.js";
import { applyDefaultPreset } from "./js/preset.js";
import { Badges } from "./js/badges.js";
import { comparisonParts } from "./js/comparisons.js";
import { convertMenuItems } from "./js/convert.js";
import { listen } from "./js/events.js";
import { expandMenuItems } from "./js/expand.js";
import { createReportCommand } from "./js/report.js";
import { reportParts } from "./js/report_text.js";
import { Results } from "./js/results.js";
import { createSettings } from "./js/settings.js";
import { ActivityStore } from "./js/store.js";
import { rememberWidgetNames } from "./js/versions.js";
import { loadWords } from "./js/words.js";

const store = new ActivityStore();
const badges = new Badges(store);
const results = [
  new Results(store, { key: "comparison", minHeight: 400, minWidth: 340, parts: comparisonParts }),
  new Results(store, { key: "report", minHeight: 90, minWidth: 340, parts: reportParts }),
];

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
    badges.start();
    for (const kind of results) kind.start();
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
    badges.refresh();
    for (const kind of results) kind.refresh();
  },
});
