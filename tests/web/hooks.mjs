// Node imports web/js as a browser does, with stand-ins for ComfyUI's two modules.

const STAND_INS = new URL("comfyui.mjs", import.meta.url).href;

export async function resolve(specifier, context, next) {
  return /\/scripts\/(app|api)\.js$/.test(specifier) ? { url: STAND_INS, shortCircuit: true } : next(specifier, context);
}

export async function load(url, context, next) {
  return next(url, url.includes("/web/js/") ? { ...context, format: "module" } : context);
}
