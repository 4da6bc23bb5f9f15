// Print, for each interface of payloads.d.ts and measurements.d.ts in web/js, its keys and whether web/js reads them:
// {"Cache": {"bytes": true}}.
//
// TypeScript itself says where a key is used. Giving a key a value is no reading of it. That a key is read which is not
// in the interface is an error of the type check already.

import { dirname, join, resolve } from "node:path";
import ts from "typescript";

const here = import.meta.dirname;
const file = join(here, "tsconfig.json");
const config = ts.getParsedCommandLineOfConfigFile(file, {}, { ...ts.sys, onUnRecoverableConfigFileDiagnostic() {} });
const declared = ["payloads", "measurements"].map((name) => resolve(here, `../../web/js/${name}.d.ts`));
const service = ts.createLanguageService({
  getScriptFileNames: () => [...config.fileNames, ...declared],
  getScriptVersion: () => "1",
  getScriptSnapshot: (name) => ts.ScriptSnapshot.fromString(ts.sys.readFile(name) ?? ""),
  getCurrentDirectory: () => dirname(file),
  getCompilationSettings: () => config.options,
  getDefaultLibFileName: ts.getDefaultLibFilePath,
  fileExists: ts.sys.fileExists,
  readFile: ts.sys.readFile,
  readDirectory: ts.sys.readDirectory,
});
const program = service.getProgram();

/** Whether the name at a place gets a value there: in an object that is made, or on the left of "=". */
function isWritten({ fileName, textSpan }) {
  let node = program.getSourceFile(fileName);
  for (let inner = node; inner; ) {
    node = inner;
    inner = node.getChildren().find((child) => child.pos <= textSpan.start && textSpan.start < child.end);
  }
  const { parent } = node;
  if (ts.isPropertyAssignment(parent) || ts.isShorthandPropertyAssignment(parent)) return parent.name === node;
  if (!ts.isPropertyAccessExpression(parent) || parent.name !== node) return false;
  const whole = parent.parent;
  return ts.isBinaryExpression(whole) && whole.left === parent && whole.operatorToken.kind === ts.SyntaxKind.EqualsToken;
}

const found = {};
for (const payloads of declared)
  for (const statement of program.getSourceFile(payloads).statements) {
    if (!ts.isInterfaceDeclaration(statement)) continue;
    const keys = (found[statement.name.text] = {});
    for (const { name } of statement.members) {
      const uses = service.findReferences(payloads, name.getStart()) ?? [];
      const places = uses.flatMap(({ references }) => references).filter((use) => !declared.includes(resolve(use.fileName)));
      keys[name.text] = places.some((place) => !isWritten(place));
    }
  }
console.log(JSON.stringify(found));
