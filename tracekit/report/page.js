// The page's behaviour: draws the charts from the rows in the page, and ties controls, ledger and stacks to them.
// Text of the recording is only ever set as text. No number is computed here but sums and shares of rows in the page.

const page = JSON.parse(document.getElementById("data").textContent);
const MIB = 1024 * 1024;
const MOST_ROWS = 5000;
const MOST_BUTTONS = 3; // moments with a button of their own
const MOST_SHAKE = 2; // pixels between down and up of what still is a click

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

const OPENING = "the opening state";

/** Where an event is, in words. */
function place(row) {
  let told = row.event_ix < 0 ? OPENING : `after event ${exact(row.event_ix)}`;
  if (row.step != null) told += `, step ${row.step}`;
  if (row.phase != null) told += `, ${row.phase}`;
  return told;
}

// ---------------------------------------------------------------------------------------------------------- charts

const LABELS = 84; // labels of the axis stand left of the width that a chart is told
const WIDEST_NAME = 130; // a bucket in a legend
const BESIDE = 420; // an account beside a chart, with its labels

/** The legends of a chart that tell in how many columns they stand. */
function legendsOf(part) {
  if (part === null || typeof part !== "object") return [];
  const own = part.legend?.columns ? [part.legend] : [];
  return [...own, ...Object.values(part).flatMap(legendsOf)];
}

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
    if (part?.title?.subtitle) part.title.limit = width; // what it says stands in the answer below as well
  }
  for (const legend of legendsOf(spec)) legend.columns = Math.max(2, Math.floor(width / WIDEST_NAME));
  for (const param of spec.params ?? []) {
    if (param.name === "drawn_width") param.value = width;
    delete param.bind; // the page has controls of its own
  }
}

/** Lets the page move the brush, whose place Vega keeps where only the brush's own events reach it. */
function open(vega) {
  const brush = vega.marks.flatMap((mark) => mark.signals ?? []).find((signal) => signal.name === "brush_x");
  if (brush === undefined) return vega;
  const { value } = brush;
  delete brush.value;
  brush.push = "outer";
  vega.signals.push({ name: brush.name, value });
  return vega;
}

/** What hovering tells, but for what the recording does not say; `clean` makes a value harmless as markup. */
function hoverTable(told, clean) {
  const lines = Object.entries(told).filter(([, value]) => value !== "null");
  return `<table>${lines.map(([name, value]) =>
    `<tr><td class="key">${clean(name)}</td><td class="value">${clean(value)}</td></tr>`).join("")}</table>`;
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
    patch: open,
    tooltip: { disableDefaultStyle: true, formatTooltip: hoverTable },
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
  if (row.action != null) told.push(`\n${row.action} of `, sizeOf(row.size_bytes));
  if (row.event_bucket != null) told.push(` (${row.event_bucket})`);
  if (row.requested_by != null) told.push(`\nby ${row.requested_by}`);
  article.querySelector(".moment").replaceChildren(...told);
}

// ------------------------------------------------------------------------------------------------------ allocation

/** Tells one allocation: what it is, how long it lived, and the stack that asked for it. */
function showAllocation(place, row, stacks) {
  const line = (...told) => element("p", {}, ...told);
  const where = [
    row.is_older ? "older than the recording" : `born at event ${exact(row.begin_event_ix)}`,
    row.step == null ? null : `step ${row.step}`,
    row.phase,
    row.is_kept ? "never given back" : `gone at event ${exact(row.end_event_ix)}`,
  ];
  const frames = stacks.filter((frame) => row.stack_id != null && frame.stack_id === row.stack_id);
  place.replaceChildren(
    element("h3", {}, `allocation ${exact(row.allocation_id)}, ${row.bucket}`),
    line(sizeOf(row.requested_bytes), ` asked for, ${exact(row.requested_bytes)} bytes`),
    line(where.filter((part) => part != null).join(", ")),
    line(frames.length ? "asked for by, the innermost first:" : "no stack was recorded"),
    element("ol", {}, ...frames.map((frame) => element("li", {}, frame.shown))),
  );
}

// -------------------------------------------------------------------------------------------------------- controls

/** A slider over the places of a list, with its name before it and what it is at behind it. */
function slider(name, last, control = name) {
  const input = element("input", { type: "range", min: 0, max: last, "data-control": control });
  const told = element("output");
  return {
    input,
    label: element("label", { class: "wide" }, name, input, told),
    index: () => Number(input.value),
    set(index, text, spoken) {
      input.value = index;
      told.textContent = text;
      input.setAttribute("aria-valuetext", spoken);
    },
  };
}

function button(name, press) {
  const made = element("button", { type: "button" }, name);
  made.addEventListener("click", press);
  return made;
}

/** The place in a rising list of numbers of the one nearest to a value. */
function nearest(numbers, value) {
  const isNearer = (one, other) => Math.abs(numbers[one] - value) < Math.abs(numbers[other] - value);
  return numbers.reduce((best, _, at) => (isNearer(at, best) ? at : best), 0);
}

/**
 * Tells of each click in a part of a drawing, as the share of its width, with what `before` gave when the pointer went
 * down; a drag is none.
 */
function clicks(drawing, part, before, click) {
  let down = null;
  drawing.addEventListener("pointerdown", (event) => {
    down = event.button === 0 && event.target.closest(part) ? { x: event.clientX, was: before() } : null;
  }, { capture: true }); // before Vega hears of it
  drawing.addEventListener("pointerup", (event) => {
    if (down === null || Math.abs(event.clientX - down.x) > MOST_SHAKE) return;
    const { left, width } = drawing.querySelector(`${part} .background`).getBoundingClientRect();
    const { was } = down;
    down = null;
    click(Math.min(Math.max((event.clientX - left) / width, 0), 1), was);
  });
}

// ------------------------------------------------------------------------------------- what each chart is tied to

const ties = {
  /** The ledger shows the moment that a click or a slider chooses, the detail the part between two others. */
  timeline(view, section, tables, device) {
    const rows = tables.timeline;
    const events = rows.map((row) => row.event_ix);
    const last = rows.length - 1;
    const whole = [events[0], events[last]];
    const buckets = tables.stacked.map((row) => row.bucket);
    const moment = slider("moment", last);
    const from = slider("from", last);
    const to = slider("to", last);
    let shown = whole;

    const name = (index) => (events[index] < 0 ? OPENING : `event ${exact(events[index])}`);
    const tell = (index) => {
      moment.set(index, name(index), place(rows[index]));
      showAccount(section.closest("article"), buckets, rows[index]);
    };
    const follow = (range) => {
      shown = range;
      for (const [end, event] of [[from, range[0]], [to, range[1]]]) {
        const index = nearest(events, event);
        end.set(index, name(index), place(rows[index]));
      }
    };
    const reveal = (begin, end) => {
      follow([begin, end]);
      const width = view.signal("drawn_width");
      const isWhole = begin <= whole[0] && end >= whole[1];
      const at = (event) => (isWhole ? 0 : ((event - whole[0]) / (whole[1] - whole[0])) * width);
      view.signal("brush_x", [at(begin), at(end)]).runAsync();
    };
    const choose = (index, range = shown) => {
      const [chosen] = view.data("moment_store");
      view.data("moment_store", [{ ...chosen, values: [events[index]] }]).runAsync();
      tell(index);
      const span = range[1] - range[0];
      const begin = Math.min(Math.max(events[index] - span / 2, whole[0]), whole[1] - span);
      const isInside = events[index] >= range[0] && events[index] <= range[1];
      if (!isInside) reveal(begin, begin + span);
      else if (range !== shown) reveal(...range);
    };

    view.addSignalListener("moment", (_, value) => {
      const index = events.indexOf(value.event_ix?.[0]);
      if (index >= 0) tell(index);
    });
    view.addSignalListener("brush", (_, value) => follow(value.event_ix ?? whole));
    moment.input.addEventListener("input", () => choose(moment.index()));
    from.input.addEventListener("input", () => {
      const begin = Math.min(from.index(), last - 1);
      reveal(events[begin], events[Math.max(begin + 1, to.index())]);
    });
    to.input.addEventListener("input", () => {
      const end = Math.max(to.index(), 1);
      reveal(events[Math.min(end - 1, from.index())], events[end]);
    });
    clicks(section.querySelector(".drawing"), ".overview_group", () => shown, (share, before) =>
      choose(nearest(events, whole[0] + share * (whole[1] - whole[0])), before));

    const pointed = tables.mark.filter((mark) => events.includes(mark.event_ix)).slice(0, MOST_BUTTONS);
    const buttons = pointed.map((mark) => button(`To the ${mark.moment}`, () => choose(events.indexOf(mark.event_ix))));
    const controls = section.querySelector(".controls");
    controls.append(element("div", { class: "row" }, moment.label, ...buttons));
    if (last > 0) {
      const all = button("Show all", () => reveal(...whole));
      controls.append(element("div", { class: "row" }, from.label, to.label, all));
    }
    follow(whole);
    if (events.includes(device.peak)) tell(events.indexOf(device.peak));
  },

  /** A slider and a play button move the mark of the step. */
  step(view, section, tables) {
    const last = tables.step.length - 1;
    const mark = slider("mark", last, "step");
    let timer = null;
    const go = (index) => {
      mark.set(index, `mark ${index + 1} of ${last + 1}`, tables.step[index].mark);
      view.signal("step_mark", index).runAsync();
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    const play = button("Play", () => {
      if (timer !== null) return stop();
      play.textContent = "Pause";
      if (mark.index() === last) go(0);
      timer = setInterval(() => {
        if (mark.index() === last) return stop();
        go(mark.index() + 1);
      }, 250);
    });
    play.dataset.control = "play";
    mark.input.addEventListener("input", () => go(mark.index()));
    section.querySelector(".controls").append(play, mark.label);
    go(view.signal("step_mark"));
  },

  /** The allocation that a click or a slider chooses tells its life and its stack. */
  allocations(view, section, tables) {
    const rows = tables.allocation;
    const chosen = slider("allocation", rows.length - 1);
    const tell = (index) => {
      chosen.set(index, `${exact(index + 1)} of ${exact(rows.length)}, the largest first`, rows[index].bucket);
      showAllocation(section.querySelector(".picked"), rows[index], tables.stack);
    };
    view.addSignalListener("picked", (_, value) => {
      const index = rows.findIndex((row) => row.allocation_id === value.allocation_id?.[0]);
      if (index >= 0) tell(index);
    });
    chosen.input.addEventListener("input", () => {
      const { allocation_id, stack_id } = rows[chosen.index()];
      const [picked] = view.data("picked_store");
      view.data("picked_store", [{ ...picked, values: [allocation_id, stack_id] }]).runAsync();
      tell(chosen.index());
    });
    section.querySelector(".controls").append(chosen.label);
    tell(0);
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
