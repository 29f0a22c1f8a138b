// SPDX-License-Identifier: Apache-2.0
// The page around charts: tabs, search, mouse, keys, details.
"use strict";

const byId = id => document.getElementById(id);

// Makes an element with a text and children.
function element(name, text, ...inside) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  made.append(...inside);
  return made;
}

// With a step: a label of an axis that reaches to `most`, all in one unit.
function timeText(nanoseconds, step, most = nanoseconds) {
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(u => Math.abs(most) >= u[0]) || [1, "ns"];
  const digits = step ? Math.min(6, Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9))) : 2;
  return (nanoseconds / size).toLocaleString("en", {minimumFractionDigits: step ? digits : 0, maximumFractionDigits: digits}) + " " + unit;
}

function bytesText(bytes) {
  const [size, unit] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]].find(u => Math.abs(bytes) >= u[0]) || [1, "B"];
  return (bytes / size).toLocaleString("en", {maximumFractionDigits: 2}) + " " + unit;
}

const HELP = "Wheel: zoom. Drag: move. Double-click: zoom to a bar. Wheel over the names: scroll. Keys: arrows, + and -; 0 shows all, / searches, Enter finds the next.";

// Shows rows [name, value]; a value is a text, a number or {text, go} for a link to a span.
function details(rows) {
  const table = element("table");
  for (const [name, value] of rows) {
    const cell = element("td");
    for (const part of Array.isArray(value) ? value : [value])
      if (part && part.go) {
        const button = element("button", part.text);
        button.onclick = () => viewer.chart.go(part.go);
        cell.append(button, " ");
      } else cell.append(String(part));
    table.append(element("tr", undefined, element("th", name), cell));
  }
  byId("details").replaceChildren(table);
}

// Shows texts, each with a colour if {text, color}.
function summary(parts) {
  byId("summary").replaceChildren(...parts.map(part => {
    if (!part.color) return element("span", part);
    const box = element("i");
    box.style.background = part.color;
    return element("span", undefined, box, part.text);
  }));
}

// The page. views: {name: lanes and options of a chart}.
class Viewer {
  constructor(views) {
    this.canvas = document.querySelector("canvas");
    this.charts = {};
    for (const [name, {lanes, ...options}] of Object.entries(views)) {
      const tab = element("button", name);
      tab.setAttribute("role", "tab");
      tab.onclick = () => this.open(name);
      if (Object.keys(views).length > 1) byId("tabs").append(tab);
      this.charts[name] = {tab, lanes, options: {...options, moved: chart => this.moved(chart)}};
    }
    this.listen();
  }

  open(name) {
    for (const [other, {tab}] of Object.entries(this.charts)) tab.setAttribute("aria-selected", other === name);
    const one = this.charts[name];
    this.chart = one.chart || (one.chart = new Chart(this.canvas, one.lanes, one.options));
    this.find();
    this.chart.pick(this.chart.picked, this.chart.picked && this.chart.picked.lane);
  }

  moved(chart) {
    byId("span").textContent = "shown: " + chart.options.text(chart.end - chart.start);
  }

  find() {
    const text = byId("search").value, count = this.chart.search(text);
    byId("found").textContent = text.trim() ? `${count.toLocaleString("en")} found${count ? ", Enter: next" : ""}` : "";
  }

  tip(event) {
    const {lane, span, label, index} = this.chart.at(event.offsetX, event.offsetY), tip = byId("tip");
    const text = span && !label ? this.chart.options.tip(span, lane, index) : label && lane.lanes ? "click to open or close" : "";
    tip.hidden = !text;
    tip.textContent = text;
    const left = Math.min(event.offsetX + 14, this.canvas.clientWidth - tip.offsetWidth - 4);
    tip.style.left = Math.max(left, 0) + "px";
    tip.style.top = Math.min(event.offsetY + 16, this.canvas.clientHeight - 30) + "px";
    this.canvas.style.cursor = span || (lane && lane.lanes) ? "pointer" : "default";
  }

  click(event) {
    const {lane, span, index} = this.chart.at(event.offsetX, event.offsetY);
    if (!span && lane && lane.lanes) lane.open = !lane.open;
    this.chart.pick(span, lane, index);
  }

  listen() {
    const {canvas} = this;
    let drag = null;
    canvas.onwheel = event => {
      event.preventDefault();
      const pixels = event.deltaY * [1, 16, 200][event.deltaMode];
      if (event.shiftKey || event.offsetX < LABEL) this.chart.roll(pixels || event.deltaX);
      else this.chart.zoom(1.0015 ** pixels, this.chart.value(event.offsetX));
    };
    canvas.onpointerdown = event => {
      drag = {x: event.offsetX, y: event.offsetY, moved: false};
      canvas.setPointerCapture(event.pointerId);
      byId("tip").hidden = true;
    };
    canvas.onpointermove = event => {
      if (!drag) return this.tip(event);
      const x = event.offsetX - drag.x, y = event.offsetY - drag.y, {chart} = this;
      if (!drag.moved && Math.abs(x) + Math.abs(y) < 4) return undefined;
      const by = x / chart.width * (chart.end - chart.start);
      drag = {x: event.offsetX, y: event.offsetY, moved: true};
      chart.look(chart.start - by, chart.end - by);
      return chart.roll(-y);
    };
    canvas.onpointerup = event => {
      if (drag && !drag.moved) this.click(event);
      drag = null;
    };
    canvas.onpointerleave = () => { byId("tip").hidden = true; };
    canvas.ondblclick = event => {
      const {span} = this.chart.at(event.offsetX, event.offsetY);
      if (span && "start" in span) this.chart.look(span.start - (span.end - span.start) / 50, span.end + (span.end - span.start) / 50);
    };
    byId("fit").onclick = () => this.chart.fit();
    byId("search").oninput = () => this.find();
    byId("search").onkeydown = event => { if (event.key === "Enter") this.chart.next(event.shiftKey ? -1 : 1); };
    canvas.onkeydown = event => this.key(event);
    window.onresize = () => this.chart.roll(0);
    window.matchMedia("(prefers-color-scheme: dark)").onchange = () => this.chart.draw();
  }

  key(event) {
    const {chart} = this, step = (chart.end - chart.start) / 8, middle = (chart.start + chart.end) / 2;
    const keys = {
      ArrowLeft: () => chart.look(chart.start - step, chart.end - step),
      ArrowRight: () => chart.look(chart.start + step, chart.end + step),
      ArrowUp: () => chart.roll(-40),
      ArrowDown: () => chart.roll(40),
      "+": () => chart.zoom(0.7, middle),
      "-": () => chart.zoom(1 / 0.7, middle),
      "0": () => chart.fit(),
      Escape: () => chart.pick(null),
      "/": () => byId("search").focus(),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }
}

let viewer;
// Opens the page on its first view.
function show(views) {
  viewer = new Viewer(views);
  viewer.open(Object.keys(views)[0]);
}
