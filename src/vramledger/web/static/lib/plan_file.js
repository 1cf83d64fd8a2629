// A plan's question as a file: what was asked, and the model's own files where they are small text.
import { clean } from "vl/lib/plan_state";
import { t } from "vl/lib/words";

const KIND = "vramledger plan question";
const LARGEST_BYTES = 4_000_000;
const held = new Map();

/** Remember the files behind a source, so that they can go into a file. */
export const remember = (source, files) => held.set(source, files);

/** Give the question as a download. Resolves to what is to be told about it. */
export async function asFile(state) {
  const files = held.get(state.source) ?? [];
  const isSmall = files.length > 0 && files.every((each) => each.name.endsWith(".json")) && files.reduce((sum, each) => sum + each.size, 0) <= LARGEST_BYTES;
  const texts = isSmall ? Object.fromEntries(await Promise.all(files.map(async (each) => [each.name, await each.text()]))) : {};
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify({ kind: KIND, state, files: texts }, null, 1)], { type: "application/json" }));
  link.download = "plan-question.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return t(state.source.startsWith("upload:") && !isSmall ? "plan.saved.without" : "plan.saved", { name: link.download });
}

/** The state of such a file, its model's files sent anew; null where `files` are something else. */
export async function fromFile(known, files, upload) {
  if (files.length !== 1 || !files[0].name.endsWith(".json") || files[0].size > 2 * LARGEST_BYTES) return null;
  let found;
  try {
    found = JSON.parse(await files[0].text());
  } catch {
    return null;
  }
  if (found?.kind !== KIND) return null;
  const state = clean(known, found.state);
  const texts = Object.entries(found.files ?? {}).filter(([, text]) => typeof text === "string");
  if (!state || !texts.length) return state;
  const again = texts.map(([name, text]) => new File([text], name));
  const sent = await upload(again);
  remember(sent.source, again);
  return { ...state, source: sent.source, names: sent.names, bytes: sent.bytes };
}
