// Requests at a gateway with what its policy said of each, newest first.
import { html } from "vl/lib/dom";
import { Table } from "vl/lib/parts";
import { clock } from "vl/views/live_history";
import { count, seconds } from "vl/lib/units";
import { t } from "vl/lib/words";

const SHOWN = 100;
const TONES = { running: "good", completed: "good", waiting: "unsure", undecided: "plain-tone", "client-left": "plain-tone", drained: "plain-tone" };

/** requests: by number, as lib/history keeps them. */
export function Decisions({ requests }) {
  const newest = [...requests.values()].reverse().slice(0, SHOWN);
  if (!newest.length) return html`<p class="dim">${t("live.decisions.none")}</p>`;
  const columns = [{ name: t("live.number"), number: true }, t("live.time"), t("live.standing"), t("live.reason"), { name: t("live.lengths"), number: true }, { name: t("live.waited"), number: true }, t("live.who")];
  const rows = newest.map((each) => [
    `#${each.number}`, clock(each.came_ms), html`<span class=${`chip ${TONES[each.standing] ?? "bad"}`}>${each.standing}</span>`, html`<${Reason} of=${each} />`,
    lengths(each), each.queue_ms === null ? "" : seconds(each.queue_ms / 1000), [each.tenant, each.model].filter(Boolean).join(", "),
  ]);
  return html`<div class="decisions"><${Table} columns=${columns} rows=${rows} label=${t("live.decisions")} /></div>
    ${requests.size > newest.length && html`<p class="dim">${t("live.newest", { count: newest.length, total: count(requests.size) })}</p>`}`;
}

function Reason({ of }) {
  return html`<div class="reason"><b>${of.verdict ?? "…"}</b>${of.rule && html`, <code>${of.rule}</code>`}${of.message && `: ${of.message}`}
    ${!of.message && Object.entries(of.numbers).map(([name, value]) => ` ${name} ${count(value)}`).join(",")}
    ${of.first_rule && html` <span class="dim">(${t("live.first", { rule: `${of.first_verdict}, ${of.first_rule}` })})</span>`}</div>`;
}

function lengths(each) {
  const told = (value) => (value === null ? "?" : count(value));
  const output = each.output_tokens !== null ? told(each.output_tokens) : each.max_output_tokens !== null ? t("live.at.most", { count: told(each.max_output_tokens) }) : "?";
  return `${told(each.prompt_tokens)} + ${output}`;
}

/** Engines behind a gateway, its books beside their own word. */
export function Instances({ gateway }) {
  const told = (value) => (value === null ? t("live.unknown") : count(value));
  const columns = [t("live.name"), t("live.up"), ...["live.rest", "live.booked", "live.reserved", "live.limit", "live.foreign", "live.running"].map((name) => ({ name: t(name), number: true }))];
  const rows = gateway.instances.map((each) => [
    each.name, each.is_up === null ? t("live.unknown") : t(each.is_up ? "live.yes" : "live.no"), told(each.free_blocks), told(each.booked_blocks), told(each.reserved_blocks),
    told(each.limit_blocks), told(each.foreign_blocks), told(each.running_requests),
  ]);
  return html`<details><summary>${t("live.instances")} (${gateway.instances.length})</summary><${Table} columns=${columns} rows=${rows} label=${t("live.instances")} /></details>`;
}
