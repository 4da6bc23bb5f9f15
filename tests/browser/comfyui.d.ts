// ComfyUI serves these two modules; the extension imports them by a path that only exists in the browser.

declare module "*/scripts/app.js" {
  export const app: import("@comfyorg/comfyui-frontend-types").ComfyApp;
}
declare module "*/scripts/api.js" {
  export const api: import("@comfyorg/comfyui-frontend-types").ComfyApi;
}
