// Keeps <main data-live> fresh, and sends what buttons ask for to the REST API. Without JavaScript the pages can be read.
(() => {
  const main = document.querySelector("main[data-live]");
  const said = document.getElementById("said");
  const say = (text, bad) => { said.textContent = text; said.classList.toggle("bad", bad); said.hidden = false; };

  const refresh = async () => {
    try {
      const answer = await fetch(window.location.href, { headers: { accept: "text/html" } });
      // Whoever is on a button with the keyboard, or reads a log, must not lose it.
      const busy = main.contains(document.activeElement) || main.querySelector("details[open]");
      if (answer.ok && !busy) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        if (fresh.innerHTML !== main.innerHTML) main.innerHTML = fresh.innerHTML;
        if (!fresh.dataset.live) return;
      }
    } catch { /* the server restarts; the next round tries again */ }
    setTimeout(refresh, Number(main.dataset.live));
  };
  if (main) setTimeout(refresh, Number(main.dataset.live));

  // A log is read when it is opened. `toggle` does not bubble.
  document.addEventListener("toggle", async (event) => {
    const { log } = event.target.dataset;
    if (!log || !event.target.open) return;
    const lines = event.target.querySelector("pre");
    const answer = await fetch(log).catch(() => undefined);
    lines.textContent = answer?.ok ? await answer.text() || "it is empty" : "it cannot be read now";
  }, true);

  // What an answer led to: the operation in Location, the plan in the body, else this page.
  const opened = async (answer) => {
    const location = answer.headers.get("location") ?? "";
    const operation = location.match(/^\/v2\/operations\/([0-9a-f-]+)$/);
    if (operation) return `/ui/operations/${operation[1]}`;
    if (answer.status === 201 && new URL(answer.url).pathname === "/v2/plans") return `/ui/plans/${(await answer.json()).id}`;
    return window.location.href;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-path]");
    if (!button || !window.confirm(button.dataset.question)) return;
    const { method, path, body } = button.dataset;
    button.disabled = true;
    try {
      const headers = { accept: "application/json", ...(body && { "content-type": "application/json" }) };
      const answer = await fetch(path, { method, headers, body: body || undefined });
      if (answer.ok) { window.location.assign(await opened(answer)); return; }
      const problem = await answer.json().catch(() => ({}));
      say([problem.detail ?? `the server answered ${answer.status}`, ...(problem.reasons ?? [])].join("; "), true);
    } catch { say("the server does not answer; nothing is known of the request", true); }
    button.disabled = false;
  });
})();
