// Makes every replay on the page playable. Safe to run again: a notebook runs it once for each cell.
(() => {
  "use strict";
  const INTERVAL_MS = 1400;

  function start(player) {
    player.dataset.ready = "1";
    const last = Number(player.dataset.last);
    const slider = player.querySelector("input[type=range]");
    const shown = player.querySelector("output");
    const play = player.querySelector("[data-do=play]");
    let turn = 0;
    let timer = null;

    function show(to) {
      turn = Math.max(0, Math.min(last, to));
      slider.value = String(turn);
      player.dataset.turn = String(turn);
      shown.textContent = turn === last ? "end" : `turn ${turn + 1} of ${last}`;
      for (const pane of player.querySelectorAll(".pane")) {
        const frames = pane.querySelectorAll(".frame");
        const k = Math.min(turn, frames.length - 1);
        frames.forEach((frame, i) => { frame.hidden = i !== k; });
        pane.querySelectorAll("[data-turn].on").forEach((b) => b.classList.remove("on"));
        const button = pane.querySelector(`.turns [data-turn="${k}"]`);
        button.classList.add("on");
        const list = pane.querySelector(".turns");
        list.scrollTop = button.offsetTop - list.offsetTop - list.clientHeight / 2;
      }
    }

    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
      play.setAttribute("aria-label", "Play");
    }

    function toggle() {
      if (timer !== null) { stop(); return; }
      if (turn === last) show(0);
      play.textContent = "Pause";
      play.setAttribute("aria-label", "Pause");
      timer = setInterval(() => { show(turn + 1); if (turn === last) stop(); }, INTERVAL_MS);
    }

    const actions = {
      first: () => show(0), prev: () => show(turn - 1), next: () => show(turn + 1), last: () => show(last),
    };
    player.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.do === "play") { toggle(); return; }
      stop();
      if (button.dataset.do) actions[button.dataset.do]();
      else show(Number(button.dataset.turn));
    });
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
    player.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "ArrowLeft") { stop(); actions.prev(); }
      else if (event.key === "ArrowRight") { stop(); actions.next(); }
      else if (event.key === " " && event.target.tagName !== "BUTTON" && event.target.tagName !== "SUMMARY") toggle();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    // report.html?turn=3 opens at the third turn
    show((Number(new URLSearchParams(location.search).get("turn")) || 1) - 1);
  }

  document.querySelectorAll(".player:not([data-ready])").forEach(start);
})();
