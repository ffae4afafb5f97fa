// The dialog that resets a group or undoes that: first a dry run, then what it showed, by another button.

import { at, element, number } from "./elements.js";

const TOKEN = "kgroup-token";
const WHO = "kgroup-who";
// What the field beside "To" asks for; a place without it needs no value.
const VALUES = {
  to_offset: "Offset",
  shift_by: "Messages, back with a minus sign",
  to_datetime: "Time in UTC, as 2013-06-01T12:00:00",
  by_duration: "Duration, as PT90M or P1D",
};
const COLUMNS = [["Topic", "topic"], ["Partition", "partition"], ["Old offset", "old_offset"], ["New offset", "new_offset"]];
const MESSAGES = [["Skips", "skips"], ["Repeats", "repeats"]];

// What is asked for now: the path, the fields of the body, the columns of its rows.
let asked = null;
let shown = null;

export function askToReset(group, topics, changed) {
  const choices = [...new Set(topics)].sort().map((topic) => element("option", { value: topic }, topic));
  at("change-topic").replaceChildren(element("option", { value: "" }, "All topics"), ...choices);
  open(`Reset ${group}`, true, { path: `group/${encodeURIComponent(group)}/reset`, fields: resetFields, columns: [...COLUMNS, ...MESSAGES], changed });
}

export function askToUndo(entry, changed) {
  open(`Undo entry ${entry.id}: ${entry.action} of ${entry.group}`, false, { path: `journal/${entry.id}/undo`, fields: () => ({}), columns: COLUMNS, changed });
}

function open(title, isReset, request) {
  asked = { ...request, opener: document.activeElement?.id };
  at("change-title").textContent = title;
  at("change-where").hidden = !isReset;
  at("change-where").disabled = !isReset;
  at("change-reason").value = "";
  at("change-who").value = sessionStorage.getItem(WHO) ?? "";
  at("change-close").textContent = "Cancel";
  showValue();
  showToken();
  forget();
  at("change").showModal();
}

function resetFields() {
  const to = at("change-to").value;
  const text = at("change-value").value.trim();
  const value = !(to in VALUES) ? true : to === "to_offset" || to === "shift_by" ? whole(text) : text;
  const topic = at("change-topic").value;
  return { [to]: value, ...(topic ? { topics: [topic] } : { all_topics: true }) };
}

// What is no whole number goes as it is, and the server says what is wrong with it.
const whole = (text) => (/^[-+]?\d{1,15}$/.test(text) ? Number(text) : text);

function showValue() {
  const title = VALUES[at("change-to").value];
  at("change-value-label").hidden = !title;
  at("change-value").disabled = !title;
  at("change-value-title").textContent = title ?? "";
}

function showToken() {
  const isKnown = sessionStorage.getItem(TOKEN) !== null;
  at("change-token-label").hidden = isKnown;
  at("change-token").disabled = isKnown;
  at("change-token").value = "";
}

// What was shown is no longer what would be done.
function forget() {
  shown = null;
  at("change-problem").textContent = "";
  at("change-result").textContent = "";
  at("change-rows").hidden = true;
  at("change-confirm").hidden = true;
}

async function post(body) {
  const given = at("change-token").value.trim();
  if (given) sessionStorage.setItem(TOKEN, given);
  if (at("change-who").value.trim()) sessionStorage.setItem(WHO, at("change-who").value.trim());

  const response = await fetch(`api/v1/${asked.path}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}` },
    body: JSON.stringify(body),
  });
  if (response.status === 401) sessionStorage.removeItem(TOKEN);
  showToken();
  return response.json();
}

async function send(body) {
  const buttons = [at("change-preview"), at("change-confirm")];
  for (const button of buttons) button.disabled = true;
  try {
    const answer = await post(body);
    at("change-problem").textContent = answer.errors.map((error) => `${error.what}: ${error.message}`).join("; ");
    showRows(answer.items);
    return answer;
  } catch (error) {
    at("change-problem").textContent = `kgroup serve: ${error.message}`;
    return null;
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function showRows(items) {
  const table = at("change-rows");
  table.hidden = items.length === 0;
  table.tHead.replaceChildren(element("tr", {}, ...asked.columns.map(([title]) => element("th", { scope: "col" }, title))));
  table.tBodies[0].replaceChildren(...items.map((item) => element("tr", {}, ...asked.columns.map(([, key]) =>
    element("td", typeof item[key] === "number" ? { class: "number" } : {}, key === "topic" ? item[key] : number(item[key]))))));
}

async function preview() {
  forget();
  const who = at("change-who").value.trim();
  const reason = at("change-reason").value.trim();
  const body = { ...asked.fields(), ...(who ? { who } : {}), ...(reason ? { reason } : {}) };
  const answer = await send(body);
  if (answer === null || answer.errors.length || !answer.items.length) return;

  shown = body;
  at("change-result").textContent = "Nothing is written yet. This is what would be written:";
  at("change-confirm").hidden = false;
  at("change-confirm").textContent = `Write ${answer.items.length} ${answer.items.length === 1 ? "offset" : "offsets"}`;
  at("change-confirm").focus();
}

async function confirm() {
  if (shown === null) return;
  const body = { ...shown, execute: true };
  forget();
  const answer = await send(body);
  if (answer?.executed) {
    at("change-result").textContent = answer.items.length ? `Written, as entry ${answer.items[0].journal_id} of the journal:` : "";
    at("change-close").textContent = "Close";
  }
  at("change-close").focus();
  await asked.changed();
}

at("change-form").addEventListener("submit", (event) => { event.preventDefault(); preview(); });
at("change-form").addEventListener("input", forget);
at("change-to").addEventListener("change", showValue);
at("change-confirm").addEventListener("click", confirm);
at("change-close").addEventListener("click", () => at("change").close());
// A refresh may have replaced the button that opened it.
at("change").addEventListener("close", () => (at(asked.opener) ?? at("change-open")).focus());
