// Keeps <main data-live> fresh. Without JavaScript the page is complete, only not live.
(() => {
  const main = document.querySelector("main[data-live]");
  if (!main) return;
  const refresh = async () => {
    try {
      const answer = await fetch(main.dataset.live, { headers: { accept: "text/html" } });
      if (answer.ok) {
        const html = await answer.text();
        if (html !== main.dataset.last) { main.innerHTML = html; main.dataset.last = html; }
      }
    } catch { /* the server restarts; the next round tries again */ }
    setTimeout(refresh, 1000);
  };
  setTimeout(refresh, 1000);
})();
