// The page: a table of all groups, and one group at a time. All data is of /api/v1.

import { askToReset, askToUndo } from "./change.js";
import { at, element, number } from "./elements.js";

const PAGE_ROWS = 100;
const SHAPES = { OK: "●", WARN: "▲", ERR: "■", STOP: "■", STALL: "■", REWIND: "■", DROPPED: "○", UNKNOWN: "○" };
const SEVERITY = ["OK", "UNKNOWN", "WARN", "ERR"];

const state = { groups: [], sort: "lag", descending: true, page: 0, intervalMs: 10000, skewMs: 0, readAtMs: 0, allowsWrites: false };

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const units = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000]];
  const first = units.findIndex(([, size]) => ms >= size);
  if (first < 0) return "0s";
  const [unit, size] = units[first];
  const text = `${Math.floor(ms / size)}${unit}`;
  const next = units[first + 1];
  return next ? `${text} ${Math.floor((ms % size) / next[1])}${next[0]}` : text;
}

// Behind the year 9999, and before 1970, is no time but the number of a client that is wrong.
const MAX_TIME_MS = 253402300799999;
const clock = (ms) => ms < 0 || ms > MAX_TIME_MS ? `${ms} ms` : new Date(ms).toISOString().replace("T", " ").slice(0, 19) + "Z";

function status(word, why) {
  const shown = word ?? "UNKNOWN";
  const cell = element("span", { class: `status ${shown}` });
  cell.append(element("span", { "aria-hidden": "true" }, `${SHAPES[shown] ?? "○"} `), shown);
  if (why) cell.append(element("span", { class: "why" }, why));
  return cell;
}

function sparkline(values) {
  if (values.length < 2) return "–";
  const picture = svg("svg", { width: 90, height: 20, role: "img" });
  const most = Math.max(...values, 1);
  picture.setAttribute("aria-label", `lag from ${number(values[0])} to ${number(values.at(-1))}, at most ${number(Math.max(...values))}`);
  const points = values.map((value, index) => `${(index / Math.max(values.length - 1, 1)) * 88 + 1},${18 - (value / most) * 16}`);
  picture.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
  return picture;
}

function chart(items) {
  const known = items.filter((item) => item.lag !== null);
  if (known.length < 2) return element("p", {}, "Not enough is recorded yet.");
  const [width, height, left, bottom] = [720, 160, 60, 20];
  const [from, to] = [known[0].at_ms, known.at(-1).at_ms];
  const most = Math.max(...known.map((item) => item.lag), 1);
  const x = (ms) => left + ((ms - from) / Math.max(to - from, 1)) * (width - left - 10);
  const y = (lag) => height - bottom - (lag / most) * (height - bottom - 12);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img" });
  picture.setAttribute("aria-label", `lag from ${number(known[0].lag)} at ${clock(from)} to ${number(known.at(-1).lag)} at ${clock(to)}, at most ${number(most)}`);
  for (const [lag, text] of [[0, "0"], [most, number(most)]]) {
    picture.append(svg("line", { x1: left, x2: width - 10, y1: y(lag), y2: y(lag), stroke: "currentColor", opacity: 0.2 }));
    const label = svg("text", { x: left - 8, y: y(lag) + 4, "text-anchor": "end" });
    label.textContent = text;
    picture.append(label);
  }
  for (const [ms, anchor] of [[from, "start"], [to, "end"]]) {
    const label = svg("text", { x: x(ms), y: height - 4, "text-anchor": anchor });
    label.textContent = clock(ms).slice(11);
    picture.append(label);
  }
  const points = known.map((item) => `${x(item.at_ms)},${y(item.lag)}`).join(" ");
  picture.append(svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": 2 }));
  return picture;
}

// Title, key by which it is sorted, cell, whether it is a number.
const GROUP_COLUMNS = [
  ["Group", "group", (item) => element("a", { href: `#${encodeURIComponent(item.group)}` }, item.group)],
  ["Verdict", "verdict", (item) => status(item.verdict)],
  ["Lag", "lag", (item) => number(item.lag), true],
  ["Time lag", "time_lag_ms", (item) => duration(item.time_lag_ms), true],
  ["Trend", null, (item) => sparkline(item.trend)],
  ["State", "state", (item) => item.state],
  ["Members", "members", (item) => number(item.members), true],
  ["Last commit", "committed_at_ms", (item) => (item.age_ms === null ? "–" : `${duration(item.age_ms)} ago`), true],
];
const PARTITION_COLUMNS = [
  ["Topic", null, (item) => item.topic],
  ["Partition", null, (item) => number(item.partition), true],
  ["Status", null, (item) => status(item.status, item.why)],
  ["Offset", null, (item) => number(item.current_offset), true],
  ["End", null, (item) => number(item.log_end_offset), true],
  ["Lag", null, (item) => number(item.lag === null ? null : Math.max(item.lag, 0)), true],
  ["Time lag", null, (item) => duration(item.time_lag_ms), true],
  ["Owner", null, (item) => (item.client_id ? `${item.client_id} ${item.host}` : "–")],
  ["Committed", null, (item) => (item.age_ms === null ? "–" : `${duration(item.age_ms)} ago`), true],
];

function fill(table, columns, items) {
  const head = element("tr");
  for (const [title, key, , isNumber] of columns) {
    const cell = element("th", { scope: "col" });
    if (isNumber) cell.className = "number";
    if (key) {
      const button = element("button", { type: "button", "data-sort": key }, title);
      button.addEventListener("click", () => sortBy(key));
      cell.setAttribute("aria-sort", key !== state.sort ? "none" : state.descending ? "descending" : "ascending");
      cell.append(button);
    } else cell.append(title);
    head.append(cell);
  }
  const focused = document.activeElement?.dataset?.sort;
  table.tHead.replaceChildren(head);
  if (focused) table.tHead.querySelector(`[data-sort="${focused}"]`)?.focus();
  table.tBodies[0].replaceChildren(...items.map((item) => {
    const row = element("tr");
    for (const [, , cell, isNumber] of columns) row.append(element("td", isNumber ? { class: "number" } : {}, cell(item)));
    return row;
  }));
}

function sortBy(key) {
  state.descending = key === state.sort ? !state.descending : key !== "group";
  [state.sort, state.page] = [key, 0];
  showGroups();
}

function showGroups() {
  const text = at("filter").value.toLowerCase();
  const rank = (item) => (state.sort === "verdict" ? SEVERITY.indexOf(item.verdict) : item[state.sort] ?? -1);
  const shown = state.groups
    .filter((item) => item.group.toLowerCase().includes(text) && (!at("lagging").checked || item.lag > 0))
    .sort((a, b) => {
      const [left, right] = [rank(a), rank(b)];
      const order = left < right ? -1 : left > right ? 1 : 0;
      return state.descending ? -order : order;
    });
  const pages = Math.max(Math.ceil(shown.length / PAGE_ROWS), 1);
  state.page = Math.min(state.page, pages - 1);
  const focused = document.activeElement?.closest("#groups tbody a")?.getAttribute("href");
  fill(at("groups"), GROUP_COLUMNS, shown.slice(state.page * PAGE_ROWS, (state.page + 1) * PAGE_ROWS));
  // A refresh must not take the focus of somebody who goes through the table by keyboard.
  if (focused) at("groups").querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  at("count").textContent = `${number(shown.length)} of ${number(state.groups.length)} groups`;
  at("where").textContent = `Page ${state.page + 1} of ${pages}`;
  at("previous").disabled = state.page === 0;
  at("next").disabled = state.page >= pages - 1;
}

async function ask(path) {
  const response = await fetch(`api/v1/${path}`);
  return response.json();
}

async function showGroup(group) {
  const name = encodeURIComponent(group);
  const [partitions, lag, events, journal] = await Promise.all([
    ask(`group/${name}`), ask(`lag/${name}`), ask(`events?group=${name}`), ask(`journal?group=${name}`),
  ]);
  if (chosen() !== group) return;
  at("one-title").textContent = group;
  fill(at("partitions"), PARTITION_COLUMNS, partitions.items);
  at("lag").replaceChildren(chart(lag.items));
  at("verdict").textContent = events.verdict ?? events.errors[0]?.message ?? "";
  at("events").replaceChildren(...events.items.toReversed().slice(0, 50).map((event) => element("li", {},
    element("time", {}, clock(event.started_ms ?? event.ended_ms)),
    event.trigger
      ? `${event.trigger.replaceAll("_", " ")}${event.client_id ? ` by ${event.client_id}` : ""}${event.reason ? `: ${event.reason}` : ""}; stood ${(event.stood_ms / 1000).toFixed(1)} s, moved ${number(event.partitions_moved)}`
      : `generation ${event.generation_after}, ${event.members?.length ?? 0} members`)));
  showJournal(journal);
  at("change-open").hidden = !state.allowsWrites;
  at("change-open").onclick = () => askToReset(group, partitions.items.map((item) => item.topic), refresh);
}

function showJournal(journal) {
  const focused = document.activeElement?.id;
  at("journal").replaceChildren(...(journal.items.length
    ? journal.items.map((entry) => {
      const line = element("li", {}, element("time", {}, clock(entry.at_ms)), `${entry.id}: ${entry.action}, ${entry.status}, by ${entry.who}${entry.reason ? `: ${entry.reason}` : ""} `);
      if (state.allowsWrites && entry.status === "done") {
        const button = element("button", { type: "button", id: `undo-${entry.id}`, "aria-label": `Undo entry ${entry.id}` }, "Undo…");
        button.addEventListener("click", () => askToUndo(entry, refresh));
        line.append(button);
      }
      return line;
    })
    : [element("li", {}, journal.errors[0]?.message ?? "None in the journal.")]));
  if (focused?.startsWith("undo-")) at(focused)?.focus();
}

const chosen = () => decodeURIComponent(location.hash.slice(1)).replace(/^main$/, "");

function showAge() {
  if (!state.readAtMs) return;
  at("age").textContent = `read ${duration(Math.max(Date.now() + state.skewMs - state.readAtMs, 0))} ago`;
}

function complain(messages) {
  at("problem").hidden = messages.length === 0;
  at("problem").textContent = messages.length ? `Does not answer: ${messages.slice(0, 3).join("; ")}. ${state.readAtMs ? "Shown is what was read last." : "Nothing was read yet."}` : "";
}

async function refresh() {
  try {
    const answer = await ask("groups");
    [state.groups, state.readAtMs, state.intervalMs] = [answer.items, answer.read_at_ms, answer.interval_ms];
    state.skewMs = answer.now_ms - Date.now();
    state.allowsWrites = answer.allows_writes;
    at("cluster").textContent = answer.cluster_id;
    complain(answer.errors.map((error) => `${error.what}: ${error.message}`));
    await show();
  } catch (error) {
    complain([`kgroup serve: ${error.message}`]);
  }
  showAge();
}

async function show() {
  const group = chosen();
  at("list").hidden = group !== "";
  at("one").hidden = group === "";
  document.title = group ? `${group} – kgroup` : "kgroup";
  if (group) await showGroup(group);
  else showGroups();
}

async function run() {
  await refresh();
  setTimeout(run, Math.min(Math.max(state.intervalMs, 1000), 10000));
}

at("filter").addEventListener("input", () => { state.page = 0; showGroups(); });
at("lagging").addEventListener("change", () => { state.page = 0; showGroups(); });
at("previous").addEventListener("click", () => { state.page -= 1; showGroups(); });
at("next").addEventListener("click", () => { state.page += 1; showGroups(); });
addEventListener("hashchange", () => show().catch((error) => complain([error.message])));
setInterval(showAge, 1000);
run();
