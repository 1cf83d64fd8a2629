// A chart of ECharts with what it shows in words and numbers beside it.
import { init } from "echarts";
import { html, useEffect, useLayoutEffect, useRef, useState } from "vl/lib/dom";
import { colour } from "vl/lib/colours";
import { t, useLanguage } from "vl/lib/words";
import { Table } from "vl/lib/parts";

/** Counts how often the appearance changed, so that charts take the new colours. */
export function useAppearance() {
  const [turn, told] = useState(0);
  useEffect(() => {
    const next = () => told((each) => each + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", next);
    addEventListener("vl-appearance", next);
    return () => {
      system.removeEventListener("change", next);
      removeEventListener("vl-appearance", next);
    };
  }, []);
  return turn;
}

/**
 * `make()` gives ECharts' option, called anew when `deps` or the appearance change; `says` is one sentence for who does not see it;
 * `columns` and `rows` are the same numbers as a table. `height` in px, or a function of the width in px. `onClick` gets ECharts' event.
 *
 * @param {{make: () => object, deps: unknown[], says: string, columns?: any[], rows?: any[], height?: number | ((width: number) => number),
 *   onClick?: (event: any) => void, caption?: string, renderer?: "svg" | "canvas"}} shown
 */
export function Chart({ make, deps, says, columns, rows, height = 320, onClick, caption, renderer = "svg" }) {
  const place = useRef(null);
  const chart = useRef(null);
  const tall = useRef(height);
  tall.current = height;
  const appearance = useAppearance();
  const language = useLanguage();
  useLayoutEffect(() => {
    chart.current = init(place.current, null, { renderer });
    const fit = () => place.current && size(place.current, chart.current, tall.current);
    const watch = new ResizeObserver(fit);
    watch.observe(place.current);
    return () => {
      watch.disconnect();
      chart.current.dispose();
    };
  }, []);
  useLayoutEffect(() => {
    // An effect may be told after its element went.
    if (!place.current) return;
    size(place.current, chart.current, height);
    chart.current.setOption({ ...common(), ...make() }, { notMerge: true });
    chart.current.off("click");
    if (onClick) chart.current.on("click", onClick);
  }, [...deps, appearance, language]);
  return html`<figure class="chart">
    ${caption && html`<figcaption>${caption}</figcaption>`}
    <div ref=${place} role="img" aria-label=${says} class="drawn"></div>
    ${rows && html`<details class="numbers"><summary>${t("table")}</summary><${Table} columns=${columns} rows=${rows} label=${says} /></details>`}
  </figure>`;
}

/** As high as is said for the width that there is. */
function size(place, chart, height) {
  const high = typeof height === "function" ? height(place.clientWidth) : height;
  place.style.height = `${high}px`;
  // Drawing it anew costs as much as the new numbers do.
  if (chart.getHeight() !== high || chart.getWidth() !== place.clientWidth) chart.resize({ height: high });
}

/** What all charts share: fonts and colours of the page, no movement for who asked for none. */
function common() {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  return {
    animation: !still,
    animationDuration: 150,
    animationDurationUpdate: 150,
    backgroundColor: "transparent",
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: colour("ink") },
    color: [1, 2, 3, 4, 5, 6, 7].map((each) => colour(`s${each}`)),
  };
}

/** An axis in the page's colours; `more` are ECharts' own keys. */
export function axis(more = {}) {
  return {
    ...more,
    nameTextStyle: { color: colour("dim"), ...more.nameTextStyle },
    axisLine: { lineStyle: { color: colour("edge") }, ...more.axisLine },
    axisLabel: { color: colour("dim"), ...more.axisLabel },
    splitLine: { lineStyle: { color: colour("grid") }, ...more.splitLine },
  };
}

/** A tooltip in the page's colours. What it shows must be made with `safe`: ECharts takes it as markup. */
export function tooltip(more = {}) {
  return { backgroundColor: colour("card"), borderColor: colour("edge"), textStyle: { color: colour("ink") }, confine: true, ...more };
}

const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text as markup shows it. */
export const safe = (text) => String(text).replace(/[&<>"']/g, (sign) => SIGNS[sign]);

/** Error bars from low to high for a series of ECharts' type "custom": data [place, low, high]; `across` for bars that lie. */
export function whiskers(data, { name = "low to high", across = false, ...more } = {}) {
  return {
    type: "custom",
    name,
    z: 5,
    silent: true,
    data,
    encode: across ? { x: [1, 2], y: 0 } : { x: 0, y: [1, 2] },
    renderItem: (_params, api) => {
      const at = (value) => api.coord(across ? [value, api.value(0)] : [api.value(0), value]);
      const [low, high] = [at(api.value(1)), at(api.value(2))];
      const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour("ink"), lineWidth: 1.25 } });
      const cap = 4;
      const ends = [low, high].map(([x, y]) => (across ? line(x, y - cap, x, y + cap) : line(x - cap, y, x + cap, y)));
      return { type: "group", children: [line(low[0], low[1], high[0], high[1]), ...ends] };
    },
    ...more,
  };
}
