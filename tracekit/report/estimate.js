"use strict";
// What is chosen becomes accounts: tensors are products of sizes that came with the page, and here they are multiplied and
// added. No formula of a tensor is known in this file.

const data = JSON.parse(document.getElementById("data").textContent);
const form = document.forms[0];
const find = (selector) => document.querySelector(selector);
const MIB = 2 ** 20;

// ---- the account -------------------------------------------------------------------------------------------------

/** What the symbols stand for, as far as the whole step goes. */
function sizesOf(model, run) {
  const sizes = { ...model.sizes[run.adapted], B: run.batch, T: run.sequence, W: run.workspace };
  sizes.M = Math.min(run.batch * run.sequence, data.chunk_rows);
  return sizes;
}

/** For each part, the rows of every kind of place. */
function bundlesOf(model, run) {
  const { parts, bundles } = data.templates;
  return parts.map((part) => {
    let index = part.families[model.index];
    for (const [name, count] of part.depends) {
      const value = name === "accumulate" ? Math.min(run.accumulate, 2) : run[name];
      index = index * count + data.choices[name].indexOf(value);
    }
    return bundles[part.table[index]];
  });
}

/** The account of one place: bytes by bucket. */
function accountOf(bundles, place, around, sizes, ranks) {
  const { products, lists } = data.templates;
  const here = { ...sizes, before: around[0], after: around[1] };
  const buckets = new Array(data.buckets.length).fill(0);
  for (const bundle of bundles) {
    for (const [bucket, bytes, product, isShared] of lists[bundle[place.kind]]) {
      let size = bytes;
      for (const symbol of products[product]) size *= here[symbol];
      if (isShared) size = Math.floor((size + ranks - 1) / ranks);
      buckets[bucket] += size;
    }
  }
  return { place: place.name, moment: place.moment, buckets, total: buckets.reduce((sum, one) => sum + one, 0) };
}

/** The accounts of the moments, each at its highest place. */
function estimate(run) {
  const model = data.models[run.model];
  const sizes = sizesOf(model, run);
  const bundles = bundlesOf(model, run);
  const moments = [];
  data.places.forEach((place, index) => {
    const account = accountOf(bundles, place, model.around[index], sizes, run.ranks);
    const known = moments[place.moment];
    if (!known || account.total > known.total) moments[place.moment] = account;
  });
  const peak = moments.reduce((best, one) => (one.total > best.total ? one : best));
  return { moments, peak };
}

/** Whether a peak fits: null where it is too close to tell without a replay. */
function fits(total, limit) {
  const [above, below] = data.reserved_at_most;
  if (total > limit) return false;
  return total * above <= limit * below ? true : null;
}

/** The largest batch whose peak is at most a budget; 0 where not even one is. */
function largestBatch(run, isBelow) {
  const holds = (batch) => isBelow(estimate({ ...run, batch }).peak.total);
  if (!holds(1)) return 0;
  let high = 2;
  while (holds(high)) high *= 2;
  let low = high / 2;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}

// ---- words and elements ------------------------------------------------------------------------------------------

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("--")) made.style.setProperty(key, value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Bytes as MiB with one decimal; a half goes to the even digit, as in every printed table. */
function mib(bytes) {
  const tenths = (bytes / MIB) * 10;
  const down = Math.floor(tenths);
  const rest = tenths - down;
  const rounded = rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down;
  return (rounded / 10).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

function size(bytes, unit = "\u00a0MiB") {
  const exact = `${bytes.toLocaleString("en-US")} bytes`;
  return element("data", { value: String(bytes), title: exact }, mib(bytes) + unit);
}

function swatch(bucket) {
  return element("span", { className: "swatch", "--bucket": data.buckets[bucket].colour });
}

function cell(...children) {
  return element("td", {}, ...children);
}

function head(text, scope = "row", ...before) {
  return element("th", { scope }, ...before, text);
}

/** Ticks from 0 to the first at or above the highest, at 1, 2 or 5 times a power of ten of a binary unit. */
function ticks(highest) {
  const [unit, name] = highest >= 2 * 1024 * MIB ? [1024 * MIB, "GiB"] : [MIB, "MiB"];
  for (let power = 1; ; power *= 10) {
    for (const nice of [1, 2, 5]) {
      const step = nice * power * unit;
      const count = Math.ceil(Math.max(highest, 1) / step);
      if (count <= 6) {
        return Array.from({ length: count + 1 }, (_, index) => ({
          value: index * step,
          label: `${(index * nice * power).toLocaleString("en-US")} ${name}`,
        }));
      }
    }
  }
}

// ---- drawing -----------------------------------------------------------------------------------------------------

let picked = null; // the moment that a person chose; the peak otherwise

function draw() {
  const run = chosen();
  let problem = problemOf(run);
  const now = problem === null ? estimate(run) : null;
  if (now && now.peak.total > Number.MAX_SAFE_INTEGER) problem = "That is more than 8 PiB, too much to be counted exactly.";
  document.body.classList.toggle("refused", problem !== null);
  document.querySelectorAll("article > :not([role])").forEach((part) => (part.hidden = problem !== null));
  if (problem !== null) {
    find("h1").replaceChildren(problem);
    find(".story").replaceChildren();
    return;
  }
  const limit = run.limit;
  const shown = picked === null ? now.peak.moment : picked;
  find("h1").replaceChildren(size(now.peak.total), " of tensors at the peak");
  find(".story").replaceChildren(...story(run, now, limit));
  drawPlot(now, limit, shown);
  drawLedger(now.moments[shown]);
  drawLevers(run, now, limit);
  drawMoments(now);
}

function story(run, now, limit) {
  const model = data.models[run.model];
  const more = estimate({ ...run, batch: run.batch + 1 }).peak.total - now.peak.total;
  const told = [
    `${model.name}, ${model.sizes.none.P.toLocaleString("en-US")} parameters: highest at ${now.peak.place}.`,
    " One sequence more adds ",
    size(more),
    ".",
  ];
  if (limit === null) return told;
  const [above, below] = data.reserved_at_most;
  const surely = largestBatch(run, (total) => total * above <= limit * below);
  const byTensors = largestBatch(run, (total) => total <= limit);
  const verdict = fits(now.peak.total, limit);
  const words = { true: "It fits ", false: "It does not fit ", null: "It is too close to tell without a replay under " };
  return [
    ...told,
    " ",
    element("strong", { className: verdict === false ? "no" : "" }, words[verdict], size(limit)),
    `: the largest batch is ${surely.toLocaleString("en-US")} surely, `,
    `${byTensors.toLocaleString("en-US")} if the allocator wasted nothing.`,
  ];
}

function drawPlot(now, limit, shown) {
  const plot = find(".plot");
  const focused = document.activeElement?.dataset?.moment;
  const marks = ticks(Math.max(now.peak.total, limit ?? 0));
  const top = marks[marks.length - 1].value;
  // bars stand between the names below and the room above; a line's height is a share of the same room
  const height = (value) => `calc(3.1rem + (100% - 3.1rem - 22px) * ${value / top})`;
  const lines = marks.map((mark) => {
    const line = element("div", { className: "line" }, element("span", {}, mark.label));
    line.style.bottom = height(mark.value);
    return line;
  });
  if (limit !== null) {
    const line = element("div", { className: "line limit" }, element("span", {}, `card ${mib(limit)} MiB`));
    line.style.bottom = height(limit);
    lines.push(line);
  }
  const bars = now.moments.map((account, index) => {
    const parts = account.buckets
      .map((bytes, bucket) => ({ bytes, bucket }))
      .filter(({ bytes }) => bytes)
      .map(({ bytes, bucket }) => {
        const part = element("i", { "--bucket": data.buckets[bucket].colour });
        part.style.height = `${(100 * bytes) / top}%`;
        part.title = `${data.buckets[bucket].name}: ${mib(bytes)} MiB`;
        return part;
      });
    const name = data.moments[index].name;
    const bar = element(
      "button",
      {
        type: "button",
        className: account === now.peak ? "peak" : "",
        title: data.moments[index].meaning,
        "aria-pressed": String(index === shown),
        "aria-label": `${name}: ${mib(account.total)} MiB`,
      },
      element("span", { className: "stack" }, ...parts, element("b", {}, mib(account.total))),
      element("span", { className: "name" }, name),
    );
    bar.dataset.moment = String(index);
    bar.addEventListener("click", () => {
      picked = index;
      draw();
    });
    return bar;
  });
  plot.replaceChildren(...lines, ...bars);
  if (focused !== undefined) plot.querySelector(`[data-moment="${focused}"]`).focus();
  const present = data.buckets.filter((_, bucket) => now.moments.some((account) => account.buckets[bucket]));
  find(".legend").replaceChildren(
    ...present.map((bucket) => element("li", {}, swatch(data.buckets.indexOf(bucket)), bucket.name)),
  );
}

function drawLedger(account) {
  const { name, meaning } = data.moments[account.moment];
  find(".moment").replaceChildren(`${name}: ${meaning}, at its highest: ${account.place}`);
  const share = (bytes) => `${((100 * bytes) / account.total).toFixed(1)}\u00a0%`;
  const rows = account.buckets
    .map((bytes, bucket) => ({ bytes, bucket }))
    .filter(({ bytes }) => bytes)
    .map(({ bytes, bucket }) => {
      const bar = element("span", { "--bucket": data.buckets[bucket].colour, "--share": bytes / account.total });
      const row = element(
        "tr",
        {},
        head(data.buckets[bucket].name, "row", swatch(bucket)),
        element("td", { className: "bar" }, bar),
        cell(size(bytes, "")),
        cell(share(bytes)),
      );
      row.dataset.bucket = data.buckets[bucket].name;
      return row;
    });
  find(".ledger tbody").replaceChildren(...rows);
  find(".ledger tfoot").replaceChildren(
    element("tr", {}, head("requested"), cell(), cell(size(account.total, "")), cell(share(account.total))),
  );
}

function drawLevers(run, now, limit) {
  const words = { true: "yes", false: "no", null: "?" };
  const rows = data.levers
    .filter((lever) => Object.entries(lever.sets).some(([name, value]) => run[name] !== value))
    .map((lever) => ({ lever, total: estimate({ ...run, ...lever.sets }).peak.total }))
    .filter(({ total }) => total < now.peak.total)
    .sort((one, other) => one.total - other.total)
    .map(({ lever, total }) => {
      const button = element("button", { type: "button", className: "lever" }, lever.name);
      button.addEventListener("click", () => {
        choose(lever.sets);
        draw();
      });
      const verdict = limit === null ? "" : words[fits(total, limit)];
      const row = element(
        "tr",
        {},
        element("th", { scope: "row" }, button),
        cell(size(now.peak.total - total, "")),
        cell(verdict),
        cell(lever.cost),
      );
      row.dataset.lever = lever.name;
      return row;
    });
  const none = element("tr", {}, element("td", { colSpan: 4 }, "No single change lowers this peak."));
  find(".levers tbody").replaceChildren(...(rows.length ? rows : [none]));
}

function drawMoments(now) {
  const table = find(".moments table");
  table.tHead.replaceChildren(
    element("tr", {}, head("bucket", "col"), ...data.moments.map((moment) => head(moment.name, "col"))),
  );
  const present = data.buckets.map((_, bucket) => bucket).filter((bucket) => now.moments.some((one) => one.buckets[bucket]));
  table.tBodies[0].replaceChildren(
    ...present.map((bucket) =>
      element(
        "tr",
        {},
        head(data.buckets[bucket].name, "row", swatch(bucket)),
        ...now.moments.map((one) => (one.buckets[bucket] ? cell(size(one.buckets[bucket], "")) : cell())),
      ),
    ),
  );
  table.tFoot.replaceChildren(
    element("tr", {}, head("requested"), ...now.moments.map((one) => cell(size(one.total, "")))),
  );
}

// ---- choices -----------------------------------------------------------------------------------------------------

/** What the form says, as a run. */
function chosen() {
  const run = {};
  for (const name of [...Object.keys(data.choices), "batch", "sequence", "ranks", "model"]) {
    const field = form.elements[name];
    if (field.type === "checkbox") run[name] = field.checked;
    else if (field.type === "number" || name === "stage" || name === "model") run[name] = Number(field.value);
    else run[name] = field.value;
  }
  const card = form.elements.card.value;
  run.limit = card === "" ? null : card === "limit" ? data.limit : data.cards[Number(card)].limit;
  run.workspace = card === "" || card === "limit" ? data.workspace : data.cards[Number(card)].workspace;
  return run;
}

/** Why a choice cannot be estimated, in a sentence; null where it can. */
function problemOf(run) {
  const model = data.models[run.model];
  const numbers = { Batch: run.batch, Sequence: run.sequence, "Micro-batches": run.accumulate, Ranks: run.ranks };
  for (const [name, value] of Object.entries(numbers)) {
    if (!Number.isInteger(value) || value < 1 || value > 1e6) return `${name} must be a whole number from 1 to 1,000,000.`;
  }
  if (model.positions !== null && run.sequence > model.positions) {
    const [most, given] = [model.positions, run.sequence].map((one) => one.toLocaleString("en-US"));
    return `${model.name} has learned positions for ${most} tokens, not for ${given}.`;
  }
  return null;
}

function choose(values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (field.type === "checkbox") field.checked = value;
    else field.value = String(value);
  }
}

function start() {
  data.models.forEach((model, index) => (model.index = index));
  const options = { ...data.choices, model: data.models.map((_, index) => index) };
  const words = { model: (index) => data.models[index].name, adapted: (name) => (name === "none" ? "nothing" : name) };
  for (const [name, values] of Object.entries(options)) {
    const field = form.elements[name];
    if (field.tagName !== "SELECT") continue;
    field.append(...values.map((value) => new Option((words[name] ?? String)(value), String(value))));
  }
  const cards = data.cards.map((card, index) => new Option(`${card.name}, ${mib(card.limit)} MiB`, String(index)));
  const own = data.limit === null ? [] : [new Option(`the limit, ${mib(data.limit)} MiB`, "limit")];
  form.elements.card.append(...own, new Option("none", ""), ...cards);
  choose(data.chosen);
  form.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  draw();
  document.documentElement.dataset.drawn = "all";
}

start();
