// Files that were dropped to be diagnosed: each kept on the server under a name of its own, its text read from the browser's own file.
import { useEffect, useState } from "vl/lib/dom";
import { upload } from "vl/lib/api";
import { openLog } from "vl/lib/logtext";

const MOST_FILES = 32;
const HEAD_BYTES = 4096;
let held = [];

/**
 * [files, change]: [{source, name, shown, size, kind, file}]; they last as long as the page, whatever tab is shown.
 * @returns {[any[], (made: (before: any[]) => any[]) => void]}
 */
export function useEvidenceFiles() {
  const [files, setFiles] = useState(held);
  const change = (made) => {
    held = made(held).slice(-MOST_FILES);
    setFiles(held);
  };
  return [files, change];
}

/** Send files; resolves to what `useEvidenceFiles` holds of them. `taken` are names that are held already. */
export async function sent(files, taken, told) {
  const found = [];
  for (const file of files) {
    const names = new Set([...taken, ...found.map((each) => each.name)]);
    const kind = await kindOf(file);
    const kept = await upload([new File([file], free(file.name, names))], { told });
    found.push({ source: kept.source, name: kept.names[0], shown: `./${kept.names[0]}`, size: kept.bytes, kind, file });
  }
  return found;
}

/** A name that no other file has: two servers' logs are often called the same. */
function free(name, taken) {
  let found = name;
  for (let number = 2; taken.has(found); number += 1) found = `${number}-${name}`;
  return found;
}

/** As the commands tell them apart: a pickle or an archive, a published document, else a log (or a series, which the diagnosis says). */
async function kindOf(file) {
  const head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  if (head[0] === 0x80 || (head[0] === 0x50 && head[1] === 0x4b && head[2] === 3)) return "snapshot";
  const text = new TextDecoder().decode(head);
  const kind = /^\s*\{/.test(text) && /"kind"\s*:\s*"(plan|measurement)"/.exec(text);
  return kind ? kind[1] : "log";
}

/** The texts of logs by the name that a document has for them. */
export function useTexts(files) {
  const [texts, setTexts] = useState(new Map());
  useEffect(() => {
    let isOver = false;
    const open = async () => {
      const found = new Map();
      for (const each of files) {
        try {
          found.set(each.shown, await openLog(each.file));
        } catch {
          // A file that is gone or no archive after all: its lines are still told in the table.
        }
      }
      if (!isOver) setTexts(found);
    };
    open();
    return () => { isOver = true; };
  }, [files.map((each) => each.source).join()]);
  return texts;
}
