// A log with marked lines: a window of it that moves with the scroll bar, or pieces of it that lie in the page.
import { html, useEffect, useMemo, useRef, useState } from "vl/lib/dom";
import { findLine } from "vl/lib/logtext";
import { t } from "vl/lib/words";
import { count } from "vl/lib/units";

const ROW_PX = 21;
const TALLEST_PX = 8_000_000; // browsers draw nothing below some 16 million
const SPARE = 20;

/** `marks`: Map of line number to {what, isCause}. `text` as openLog gives it. `at` is the marked line that is shown first. */
export function LogWindow({ text, marks, name }) {
  const numbers = useMemo(() => [...marks.keys()].sort((one, other) => one - other), [marks]);
  const cause = numbers.find((each) => marks.get(each).isCause) ?? numbers[0] ?? 1;
  const [at, setAt] = useState(cause);
  const [shown, setShown] = useState({ first: 1, lines: [] });
  const box = useRef(null);
  const wanted = useRef(0);
  const search = useRef(0);
  const [sought, seek] = useState("");
  const [isMissing, setMissing] = useState(false);
  const tall = Math.min(text.count * ROW_PX, TALLEST_PX);
  const scale = () => {
    const room = Math.max(1, tall - box.current.clientHeight);
    return Math.max(1, text.count * ROW_PX - box.current.clientHeight) / room;
  };
  const load = async () => {
    const top = box.current.scrollTop * scale();
    const first = Math.max(1, Math.floor(top / ROW_PX) + 1 - SPARE);
    wanted.current += 1;
    const turn = wanted.current;
    const lines = await text.lines(first, Math.ceil(box.current.clientHeight / ROW_PX) + 2 * SPARE);
    if (turn === wanted.current && box.current) setShown({ first, lines });
  };
  const go = (line) => {
    const bounded = Math.min(Math.max(1, line || 1), text.count);
    setAt(bounded);
    box.current.scrollTop = ((bounded - 1) * ROW_PX - box.current.clientHeight / 3) / scale();
    load();
  };
  const find = async (event) => {
    event.preventDefault();
    if (!sought) return;
    search.current += 1;
    const turn = search.current;
    const found = await findLine(text, sought, at, () => turn !== search.current);
    if (turn !== search.current || !box.current) return;
    setMissing(found === null);
    if (found !== null) go(found);
  };
  useEffect(() => { go(cause); }, [text, cause]);
  useEffect(() => () => { search.current += 1; }, []);
  const place = numbers.filter((each) => each <= at).length;
  const next = numbers.find((each) => each > at);
  const before = numbers.filter((each) => each < at).at(-1);
  const offset = box.current ? (shown.first - 1) * ROW_PX - box.current.scrollTop * (scale() - 1) : 0;
  const mark = marks.get(at);
  return html`<div class="logview">
    <div class="logbar">
      <button type="button" class="plain" disabled=${before === undefined} onClick=${() => go(before)}>${t("log.before")}</button>
      <button type="button" class="plain" disabled=${next === undefined} onClick=${() => go(next)}>${t("log.next")}</button>
      <span role="status">${marks.has(at) ? t("log.place", { place, of: numbers.length }) : t("log.marked", { of: numbers.length })}</span>
      <label>${t("log.line")} <input type="number" min="1" max=${text.count} value=${at} onChange=${(event) => go(Number(event.target.value))} /></label>
      <span class="dim">${t("log.of", { count: count(text.count) })}</span>
      <span class="find"><input type="search" aria-label=${t("log.find")} placeholder=${t("log.find")} value=${sought} onInput=${(event) => { seek(event.target.value); setMissing(false); }} onKeyDown=${(event) => event.key === "Enter" && find(event)} />
      <button type="button" class="plain" onClick=${find}>${t("log.find")}</button> <span role="status">${isMissing ? t("log.missing") : ""}</span></span>
    </div>
    <div class="loglines" style=${{ maxHeight: `${text.count * ROW_PX + 22}px` }} ref=${box} tabindex="0" role="region" aria-label=${t("log.region", { name })} onScroll=${load}>
      <div style=${{ height: `${tall}px`, position: "relative" }}><div class="logrows" style=${{ transform: `translateY(${offset}px)` }}>
        ${shown.lines.map((line, index) => html`<${Row} number=${shown.first + index} text=${line} mark=${marks.get(shown.first + index)} isCurrent=${shown.first + index === at} />`)}
      </div></div>
    </div>
    ${mark && html`<p class="logtold"><b>${t("log.told", { line: count(at) })}</b> ${mark.what}: <code>${mark.text}</code></p>`}
  </div>`;
}

/** Pieces of a log as a file holds them: [{file, first_line, lines}], with `marks` as above. */
export function LogExcerpts({ excerpts, marks, name }) {
  return html`<div class="loglines whole" tabindex="0" role="region" aria-label=${t("log.region", { name })}><div class="logrows">
    ${excerpts.map((piece, index) => html`${index > 0 && html`<div class="gap" aria-hidden="true">⋯</div>`}${piece.lines.map((line, place) => html`<${Row} number=${piece.first_line + place} text=${line} mark=${marks.get(piece.first_line + place)} />`)}`)}
  </div></div>`;
}

function Row({ number, text, mark, isCurrent }) {
  const kind = mark ? (mark.isCause ? "mark cause" : "mark") : "";
  return html`<div class=${`logrow ${kind} ${isCurrent ? "current" : ""}`} data-line=${number}><span class="no">${number}</span><span class="what" title=${mark?.what}>${mark ? mark.what : ""}</span><span class="text">${text || " "}</span></div>`;
}
