// Shows when a schedule would fire while its cron, interval or zone is typed. Without this file the page shows what holds
// since the last save; nothing else is lost.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
    const shown = document.querySelector("[data-ductor-firings]");
    const fields = ["cron", "every_seconds", "zone"].map((name) => document.querySelector(`input[name=${name}]`));
    if (!shown || fields.some((field) => field === null)) { return; }
    let asked = 0;
    let timer;
    const ask = async () => {
        const mine = ++asked;
        const query = new URLSearchParams(fields.map((field) => [field.name, field.value]));
        let answer;
        try {
            answer = await (await fetch(`${shown.dataset.ductorFirings}?${query}`, { credentials: "same-origin" })).json();
        } catch { return; }
        if (mine !== asked) { return; }
        const items = answer.firings.map((text) => Object.assign(document.createElement("li"), { textContent: text }));
        shown.querySelector("ul").replaceChildren(...items);
        shown.querySelector("p").textContent = answer.fault;
    };
    fields.forEach((field) => field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 300); }));
});
