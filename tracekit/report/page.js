// The page's behaviour: draws the charts from the rows in the page, and ties controls, ledger and stacks to them.
// Text of the recording is only ever set as text. No number is computed here but sums and shares of rows in the page.

const page = JSON.parse(document.getElementById("data").textContent);
const MIB = 1024 * 1024;
const MOST_ROWS = 5000;

const exact = (count) => count.toLocaleString("en-US");
const mib = (count) => (count / MIB).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** An element with attributes and children; a string child is text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const sizeOf = (count) => element("data", { value: count, title: `${exact(count)} bytes` }, `${mib(count)} MiB`);

/** Rows from a table by columns; see embed.columns. */
function rowsOf(table) {
  const columns = Object.entries(table.columns).map(([name, column]) => {
    if ("all" in column) return [name, () => column.all];
    if ("words" in column) return [name, (at) => column.words[column.index[at]]];
    return [name, (at) => column.values[at]];
  });
  return Array.from({ length: table.length }, (_, at) =>
    Object.fromEntries(columns.map(([name, value]) => [name, value(at)])));
}

/** Where an event is, in words. */
function place(row) {
  let told = row.event_ix < 0 ? "before the first event" : `after event ${exact(row.event_ix)}`;
  if (row.step != null) told += `, step ${row.step}`;
  if (row.phase != null) told += `, ${row.phase}`;
  return told;
}

// ---------------------------------------------------------------------------------------------------------- charts

const LABELS = 84; // labels of the axis stand left of the width that a chart is told
const BESIDE = 420; // an account beside a chart, with its labels

/** Makes a chart as wide as its place: side by side where there is room, one below the other where there is not. */
function fit(spec, room) {
  let width = room - LABELS;
  if (spec.hconcat && room > 900) width -= BESIDE;
  else if (spec.hconcat) {
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  }
  for (const part of [spec, spec.hconcat?.[0], ...(spec.vconcat ?? [])]) {
    if (typeof part?.width === "number") part.width = width;
  }
  for (const param of spec.params ?? []) {
    if (param.name === "drawn_width") param.value = width;
    delete param.bind; // the page has controls of its own
  }
}

async function draw(section, chart, tables) {
  const spec = structuredClone(chart.spec);
  spec.config = page.config;
  spec.datasets = tables;
  const drawing = section.querySelector(".drawing");
  fit(spec, drawing.clientWidth);
  const { view } = await vegaEmbed(drawing, spec, {
    ast: true,
    actions: false,
    renderer: "svg",
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  });
  return view;
}

/** The rows of a chart as a table, made when it is asked for. */
function tabulate(details, rows) {
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const names = Object.keys(rows[0] ?? {}).filter((name) => !Array.isArray(rows[0][name]));
    const isNumber = (name) => rows.some((row) => typeof row[name] === "number");
    const numeric = new Set(names.filter(isNumber));
    const cell = (name, tag) => (value) => element(tag, numeric.has(name) ? { class: "number" } : {}, value);
    const shown = (value) => (value == null ? "" : typeof value === "number" ? exact(value) : String(value));
    const head = element("tr", {}, ...names.map((name) => cell(name, "th")(name.replaceAll("_", " "))));
    const body = rows.slice(0, MOST_ROWS).map((row) =>
      element("tr", {}, ...names.map((name) => cell(name, "td")(shown(row[name])))));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
    details.append(element("div", { class: "scroll", tabindex: "0" }, table));
  });
}

// ---------------------------------------------------------------------------------------------------------- ledger

/** Shows the account after an event of the timeline. */
function showAccount(article, buckets, row) {
  const lines = new Map(buckets.map((bucket, at) => [bucket, row.bucket_bytes[at]]));
  lines.set("allocated", row.allocated_bytes);
  lines.set("reserved", row.reserved_bytes);
  for (const line of article.querySelectorAll(".ledger tr[data-line]")) {
    const count = lines.get(line.dataset.line) ?? 0;
    const share = row.reserved_bytes ? count / row.reserved_bytes : 0;
    const [, bar, size, percent] = line.children;
    line.hidden = !count && line.querySelector(".swatch") !== null;
    bar.style.setProperty("--share", share);
    size.replaceChildren(element("data", { value: count, title: `${exact(count)} bytes` }, mib(count)));
    percent.textContent = `${(100 * share).toFixed(1)}\u00a0%`;
  }
  const told = [place(row)];
  if (row.action != null) {
    told.push(`${row.action} of ${mib(row.size_bytes)} MiB` + (row.event_bucket == null ? "" : ` (${row.event_bucket})`));
  }
  if (row.requested_by != null) told.push(`by ${row.requested_by}`);
  article.querySelector(".moment").textContent = told.join("\n");
}

// ------------------------------------------------------------------------------------- what each chart is tied to

const ties = {
  /** A moment, chosen by a click or a slider, is shown by the ledger; a part of the recording by the detail. */
  timeline(view, section, tables, device) {
    const rows = tables.timeline;
    const buckets = tables.stacked.map((row) => row.bucket);
    const at = new Map(rows.map((row, index) => [row.event_ix, index]));
    const slider = element("input", { type: "range", min: 0, max: rows.length - 1, "data-control": "moment" });
    const told = element("output");
    const peak = element("button", { type: "button" }, "To the peak");
    const show = (index) => {
      slider.value = index;
      told.textContent = `event ${exact(rows[index].event_ix)}`;
      slider.setAttribute("aria-valuetext", place(rows[index]));
      showAccount(section.closest("article"), buckets, rows[index]);
    };
    const choose = (index) => {
      const [chosen] = view.data("moment_store");
      view.data("moment_store", [{ ...chosen, values: [rows[index].event_ix] }]).runAsync();
      show(index);
    };
    view.addSignalListener("moment", (_, value) => {
      const index = at.get(value.event_ix?.[0]);
      if (index !== undefined) show(index);
    });
    slider.addEventListener("input", () => choose(Number(slider.value)));
    peak.addEventListener("click", () => choose(at.get(device.peak)));
    section.querySelector(".controls").append(element("label", { class: "wide" }, "moment", slider, told), peak);
    if (at.has(device.peak)) show(at.get(device.peak));
  },

  /** A slider and a play button move the mark of the step. */
  step(view, section, tables) {
    const last = tables.step.length - 1;
    const slider = element("input", { type: "range", min: 0, max: last, "data-control": "step" });
    const told = element("output");
    const play = element("button", { type: "button", "data-control": "play" }, "Play");
    let timer = null;
    const go = (index) => {
      slider.value = index;
      told.textContent = `mark ${index + 1} of ${last + 1}`;
      view.signal("step_mark", index).runAsync();
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    slider.addEventListener("input", () => go(Number(slider.value)));
    play.addEventListener("click", () => {
      if (timer !== null) return stop();
      play.textContent = "Pause";
      if (Number(slider.value) === last) go(0);
      timer = setInterval(() => {
        if (Number(slider.value) === last) return stop();
        go(Number(slider.value) + 1);
      }, 250);
    });
    section.querySelector(".controls").append(play, element("label", { class: "wide" }, "mark", slider, told));
    go(view.signal("step_mark"));
  },
};

// ------------------------------------------------------------------------------------------------------------ page

function themes() {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  button.hidden = false;
  label();
}

async function main() {
  themes();
  for (const section of document.querySelectorAll("section.chart")) {
    const device = page.devices[section.closest("article").dataset.device];
    const chart = device.charts[section.dataset.chart];
    if (chart === undefined) continue;
    const tables = Object.fromEntries(Object.entries(chart.tables).map(([name, table]) => [name, rowsOf(table)]));
    tabulate(section.querySelector("details"), tables[chart.shown]);
    const view = await draw(section, chart, tables);
    ties[section.dataset.chart]?.(view, section, tables, device);
  }
  document.documentElement.dataset.drawn = "all";
}

main();
