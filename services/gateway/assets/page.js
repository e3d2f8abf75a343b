// Keeps <main data-live> fresh, and sends what buttons ask for to the REST API. Without JavaScript the pages can be read.
(() => {
  const main = document.querySelector("main[data-live]");
  // As the server sent it.
  let shown = main?.innerHTML;
  const said = document.getElementById("said");
  const say = (text, bad) => { said.textContent = text; said.classList.toggle("bad", bad); };

  // A table that is wider than its window can be scrolled with the keyboard.
  const reach = () => {
    for (const wide of document.querySelectorAll(".scroll")) {
      const name = wide.querySelector("caption")?.textContent ?? wide.firstElementChild?.getAttribute("aria-label");
      const scrolls = wide.scrollWidth > wide.clientWidth;
      for (const [attribute, value] of Object.entries({ tabindex: "0", role: "group", "aria-label": name ?? "table" })) {
        if (scrolls) wide.setAttribute(attribute, value); else wide.removeAttribute(attribute);
      }
    }
  };
  reach();
  window.addEventListener("resize", reach);

  // The element that has the focus, as what takes its place after a refresh: the same link, button or part, counted among equals.
  const same = (one) => {
    const text = one.matches("a, button, summary") ? one.textContent : one.getAttribute("aria-label");
    return [one.tagName, one.getAttribute("href"), one.dataset.method, one.dataset.path, text].join("\n");
  };
  const equals = (one) => [...main.querySelectorAll(one.tagName)].filter((other) => same(other) === same(one));
  const news = (of) => [...of.querySelectorAll("[data-news]")].map((one) => one.dataset.news);
  const replace = (fresh) => {
    const before = new Set(news(main));
    const focused = main.contains(document.activeElement) ? document.activeElement : undefined;
    const at = focused && equals(focused).indexOf(focused);
    main.innerHTML = fresh.innerHTML;
    reach();
    if (focused) (equals(focused)[at] ?? document.getElementById("content")).focus({ preventScroll: true });
    const told = news(main).filter((one) => !before.has(one));
    if (told.length) document.getElementById("news").textContent = told.slice(0, 3).join("; ");
  };

  const refresh = async () => {
    try {
      const answer = await fetch(window.location.href, { headers: { accept: "text/html" } });
      // Whoever reads a log must not lose it.
      if (answer.ok && !main.querySelector("details[open]")) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector("main");
        if (fresh.innerHTML !== shown) replace(fresh);
        document.querySelector("h1").textContent = page.querySelector("h1").textContent;
        shown = fresh.innerHTML;
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
