"""Scripts that see what the page asks and keeps, or change when it is answered."""

COUNT_REQUESTS = """
if (!window.requests) {
  const { fetch } = window, requests = (window.requests = new Set());
  window.fetch = (resource, ...rest) => {
    const answer = fetch(resource, ...rest), { origin, pathname } = new URL(resource.url ?? resource, location.href);
    if (origin === location.origin) {
      const request = { toString: () => pathname };
      requests.add(request);
      answer.then((found) => found.clone().arrayBuffer()).catch(() => {}).then(() => requests.delete(request));
    }
    return answer;
  };
}
"""
"""Script that runs before the page's own: what the page asks its server, as long as the answer is under way."""

FEWER_FRAMES = """
if (!window.fewerFrames) {
  const { requestAnimationFrame: next, cancelAnimationFrame: cancel } = window;
  const frames = (window.fewerFrames = new Map());
  let last = 0;
  window.requestAnimationFrame = (draw) => {
    const id = ++last;
    const drawn = (time) => (frames.delete(id), draw(time));
    frames.set(id, setTimeout(() => frames.set(id, [next(drawn)]), window.samples ? 500 : 40));
    return id;
  };
  window.cancelAnimationFrame = (id) => {
    const waits = frames.get(id);
    Array.isArray(waits) ? cancel(waits[0]) : clearTimeout(waits);
    frames.delete(id);
  };
}
"""
"""Script that runs before the page's own: it draws 20 times a second, as without a GPU each frame is a processor's."""

FEWER_IN_RUNS = """
const still = document.head.appendChild(document.createElement("style"));
still.textContent = "*, ::before, ::after { animation: none !important; transition: none !important; }";
still.disabled = true;
for (const name of ["execution_start", "execution_success", "execution_error", "execution_interrupted"])
  app.api.addEventListener(name, () => (still.disabled = !(window.samples = name === "execution_start")));
"""
"""Script for a page that is ready: in a run, whose processors the frames would take, two frames a second, all still."""

SLOW_CONNECTION = """
const { api } = app, { fetchApi } = api;
const end = () => new Promise((next) => api.addEventListener("execution_success", next, { once: true }));
let run = null;
api.addEventListener("execution_start", () => (run = end()));
api.fetchApi = async (route, ...rest) => {
  const over = route === "/prompt" ? end() : null;
  await run;
  const answer = await fetchApi.call(api, route, ...rest);
  await over;
  return answer;
};
"""
"""Script that holds back what the page asks in a run, and which run it is; ``delete app.api.fetchApi`` ends that."""
