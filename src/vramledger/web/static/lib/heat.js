// Where it holds: devices down, what is chosen across, the best plan in each cell. Takes rows of a search or of a grid.
import { axis, Chart, safe, tooltip } from "vl/lib/chart";
import { channels, colour, mixed } from "vl/lib/colours";
import { html, useState } from "vl/lib/dom";
import { canOpen } from "vl/lib/open_plan";
import { Select } from "vl/lib/parts";
import { bytes, count } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/fit";

addWords(words);

const ROW_PX = 34;
const MOST_ROWS = 120;
const NARROWEST_LABEL_PX = 38;
/** What may stand across: its value in a row, and how that is written. */
const ACROSS = {
  context: [(row) => row.context_tokens, (value) => (value === null ? "—" : short(value))],
  formats: [(row) => `${row.weights} / ${row.kv}`, String],
  devices: [(row) => row.devices, String],
  engine: [(row) => row.engine, String],
};
const METRICS = { tokens: (row) => row.pool_tokens, requests: (row) => row.max_concurrency, devices: (row) => row.devices };
const RANK = { holds: 0, untold: 1, fails: 2, refused: 3 };

/** rows: those of a published search; `columns` are values that a row may not be there for, by what stands across; `onChoose` gets the row of a cell. */
export function Heat({ rows, columns = {}, onChoose }) {
  const offered = Object.keys(ACROSS).filter((name, place) => place < 2 || new Set(rows.map(ACROSS[name][0])).size > 1);
  const varied = offered.find((name) => new Set([...(columns[name] ?? []), ...rows.map(ACROSS[name][0])]).size > 1) ?? offered[0];
  const [chosen, setChosen] = useState(null);
  const [metric, setMetric] = useState("tokens");
  const across = offered.includes(chosen) ? chosen : varied;
  const [value, written] = ACROSS[across];
  const names = [...new Set(rows.map((row) => row.device))].slice(0, MOST_ROWS);
  const values = [...new Set([...(columns[across] ?? []), ...rows.map(value)])];
  if (across === "context" || across === "devices") values.sort((one, other) => (one ?? Infinity) - (other ?? Infinity));
  if (across === "formats") values.sort((one, other) => other.startsWith("stored") - one.startsWith("stored") || (one < other ? -1 : 1));
  const cells = new Map();
  for (const row of rows) {
    const key = `${row.device}\n${value(row)}`;
    if (better(row, cells.get(key), METRICS[metric])) cells.set(key, row);
  }
  const all = names.flatMap((name, down) => values.map((each, right) => ({ down, right, name, row: cells.get(`${name}\n${each}`) ?? null })));
  const holding = all.filter((cell) => cell.row?.status === "holds");
  const amounts = holding.map((cell) => METRICS[metric](cell.row)).filter((amount) => amount > 0);
  const [least, most] = [Math.log(Math.min(...amounts)), Math.log(Math.max(...amounts))];
  const shade = (amount) => (amounts.length === 0 || most === least ? 0.5 : (Math.log(Math.max(amount, 1e-9)) - least) / (most - least));
  const said = (cell) => told(cell.row, metric);
  const inTable = (cell) => {
    const text = said(cell).join(" ");
    return onChoose && cell.row && canOpen(cell.row) ? html`<button type="button" class="plain whole" onClick=${() => onChoose(cell.row)}>${text}</button>` : text;
  };
  const make = () => ({
    grid: { left: 4, right: 4, top: 12, bottom: 8, containLabel: true },
    tooltip: tooltip({ formatter: ({ data }) => hint(all[data.value[2]]) }),
    xAxis: axis({ type: "category", position: "top", data: values.map(written), splitLine: { show: false }, axisTick: { show: false }, axisLabel: { color: colour("ink"), interval: 0, rotate: values.length > 8 ? 60 : 0 } }),
    yAxis: axis({ type: "category", inverse: true, data: names, splitLine: { show: false }, axisTick: { show: false }, axisLabel: { color: colour("ink"), width: 112, overflow: "truncate" } }),
    series: [
      {
        type: "custom",
        data: all.map((cell, place) => ({ value: [cell.right, cell.down, place] })),
        encode: { x: 0, y: 1 },
        cursor: onChoose ? "pointer" : "default",
        renderItem: (_params, api) => square(api, all[api.value(2)], { said, shade, metric }),
      },
    ],
  });
  const lead = metric === "devices" ? t("heat.lead.devices") : t("heat.lead", { metric: t(`heat.metric.${metric}`) });
  return html`<div class="compare-pair"><${Select} label=${t("heat.across")} value=${across} options=${offered.map((name) => [name, t(`heat.across.${name}`)])} onChange=${setChosen} />
      <${Select} label=${t("heat.metric")} value=${metric} options=${Object.keys(METRICS).map((name) => [name, t(`heat.metric.${name}`)])} onChange=${setMetric} /></div>
    <${Chart} make=${make} deps=${[rows, across, metric, JSON.stringify(columns)]} height=${names.length * ROW_PX + (values.length > 8 ? 130 : 48)} caption=${lead}
      onClick=${onChoose && (({ data }) => { const { row } = all[data.value[2]]; if (row && canOpen(row)) onChoose(row); })}
      says=${t("heat.says", { across: t(`heat.across.${across}`), holds: holding.length, all: all.length })}
      columns=${[t("heat.row"), ...values.map((each) => ({ name: written(each), number: true }))]}
      rows=${names.map((name, down) => [name, ...values.map((_, right) => inTable(all[down * values.length + right]))])} />`;
}

/** Whether a row stands for its cell rather than the one that does: what holds, on fewer devices, with more. */
function better(row, other, amount) {
  if (!other) return true;
  if (RANK[row.status] !== RANK[other.status]) return RANK[row.status] < RANK[other.status];
  if (row.status === "fails") return row.shortfall_bytes * row.devices < other.shortfall_bytes * other.devices;
  return row.devices !== other.devices ? row.devices < other.devices : (amount(row) ?? 0) > (other ? amount(other) ?? 0 : 0);
}

/** "32K": a length in the units it is asked in. */
function short(length) {
  if (length % 2 ** 20 === 0) return `${length / 2 ** 20}M`;
  return length % 2 ** 10 === 0 ? `${length / 2 ** 10}K` : count(length);
}

/** "446k": as much of a number as a cell has room for. */
function brief(amount) {
  const digits = (value) => String(+value.toPrecision(3));
  if (amount >= 1e6) return `${digits(amount / 1e6)}M`;
  return amount >= 1e3 ? `${digits(amount / 1e3)}k` : digits(amount);
}

/** A cell in two short words: its figure, and on what or by how much not. */
function told(row, metric) {
  if (!row || row.status === "refused") return ["–", ""];
  const on = `${row.devices}×`;
  if (row.status === "holds") {
    const amount = METRICS[metric](row);
    return metric === "devices" ? [on, row.pp > 1 ? `tp${row.tp} pp${row.pp}` : `tp${row.tp}`] : [amount === null ? "✓" : metric === "requests" ? String(+amount.toPrecision(3)) : brief(amount), on];
  }
  return row.status === "untold" ? ["?", on] : ["✕", `${+(row.shortfall_bytes / 2 ** 30).toPrecision(2)} GiB`];
}

function hint(cell) {
  const { row } = cell;
  if (!row) return `<b>${safe(cell.name)}</b><br>${t("heat.cell.none")}`;
  const lines = [`<b>${row.devices} × ${safe(row.device)}</b>`, `${safe(row.engine)} · tp ${row.tp} pp ${row.pp}${row.ep ? " ep" : ""} · ${safe(row.weights)} / KV ${safe(row.kv)}`];
  if (row.context_tokens !== null) lines.push(`${count(row.concurrency)} × ${count(row.context_tokens)} tokens`);
  lines.push(t(`compare.status.${row.status}`) + (row.status === "fails" ? `: ${t("verdict.short", { bytes: bytes(row.shortfall_bytes) })}${row.owner ? ` (${safe(row.owner)})` : ""}` : ""));
  if (row.pool_tokens !== null) lines.push(`${count(row.pool_tokens)} tokens (${count(row.pool_tokens_low)} … ${count(row.pool_tokens_high)}), ${row.max_concurrency.toFixed(2)} ${t("fit.column.requests")}`);
  if (row.status !== "holds") lines.push(`<span style="white-space:normal">${safe(row.reason.slice(0, 200))}</span>`);
  return lines.join("<br>");
}

/** A cell: filled where it holds, outlined where not, its words within as far as there is room. */
function square(api, cell, { said, shade, metric }) {
  const [x, y] = api.coord([api.value(0), api.value(1)]);
  const [width, height] = api.size([1, 1]);
  const [figure, under] = said(cell);
  const holds = cell.row?.status === "holds";
  const part = holds ? shade(METRICS[metric](cell.row) ?? 0) : 0;
  const fill = accented(part);
  const style = holds ? { fill } : { fill: "transparent", stroke: colour("edge"), lineDash: [3, 3], lineWidth: 1 };
  const ink = holds ? legible(fill) : cell.row?.status === "untold" ? colour("unsure") : colour("dim");
  const box = { x: x - width / 2 + 1, y: y - height / 2 + 1, width: Math.max(width - 2, 1), height: height - 2 };
  const text = (words, dy, size) => ({ type: "text", silent: true, style: { text: words, x, y: y + dy, textAlign: "center", textVerticalAlign: "middle", fill: ink, fontSize: size, fontFamily: "inherit" } });
  const isRoom = width >= NARROWEST_LABEL_PX;
  return {
    type: "group",
    children: [
      { type: "rect", shape: { ...box, r: 3 }, style },
      text(figure, isRoom && under ? -7 : 0, isRoom ? (width < 48 ? 11 : 12) : 9),
      ...(isRoom && under ? [text(width < 52 ? under.replace(/^\d+\.\d+(?= GiB)/, (amount) => String(+(+amount).toPrecision(1))) : under, 8, width < 52 ? 9 : 10)] : []),
    ],
  };
}

/** The page's accent, stronger with more. */
const accented = (part) => mixed(colour("paper"), colour("accent"), 0.12 + 0.88 * part);

/** Black or white, whichever stands out more from a fill (WCAG's contrast). */
function legible(fill) {
  const [r, g, b] = channels(fill).map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (luminance + 0.05) >= (luminance + 0.05) / 0.05 ? "#ffffff" : "#000000";
}
