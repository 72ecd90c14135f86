// Ticks or unticks all rows of a table. Without this file the box in the table's head stays hidden; nothing else is lost.
"use strict";
for (const all of document.querySelectorAll("input[data-ductor-all]")) {
    const boxes = [...all.closest("table").querySelectorAll("input[name=ids]")];
    all.hidden = false;
    all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
    boxes.forEach((box) => box.addEventListener("change", () => { all.checked = boxes.every((each) => each.checked); }));
}
