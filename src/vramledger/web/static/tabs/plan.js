import { html, useEffect, useState } from "vl/lib/dom";
import { run } from "vl/lib/api";
import { Command, Problem, Select, Slider, useRun } from "vl/lib/parts";
import { t } from "vl/lib/words";
import { View } from "vl/views/plan";

const CONTEXTS = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072];

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useState(state ?? { model: known.models[0], device: "H100 SXM 80GB", context: 8192 });
  const { answer, problem, start } = useRun(run);
  useEffect(() => {
    start({ command: "plan", sources: [`builtin:${asked.model}`], options: { device: asked.device, max_model_len: asked.context } });
  }, [asked]);
  const set = (more) => setAsked({ ...asked, ...more });
  return html`<div class="split"><form class="controls" aria-label=${t("tab.plan")} onSubmit=${(event) => event.preventDefault()}>
      <${Select} label=${t("device")} value=${asked.device} options=${known.devices.map((each) => each.name)} onChange=${(device) => set({ device })} />
      <${Slider} label=${t("context")} value=${asked.context} steps=${CONTEXTS} onChange=${(context) => set({ context })} />
    </form>
    <div class="shown"><${Problem} message=${problem} />
      ${answer && html`<${View} document=${answer.document} /><${Command} line=${answer.command} />`}</div></div>`;
}
