// The text of a log from the browser's own file, by line number: only the lines that are shown are held where it is large.

const EVERY = 512; // a line's place is kept for every so many lines
const SMALL_BYTES = 4 * 2 ** 20;
const LONGEST = 4000;
const LARGEST_BYTES = 2 ** 31;
const FREE_EXPANSION_BYTES = 64 * 2 ** 20; // as the commands unpack
const MOST_EXPANSION = 300;
const ESCAPE = String.fromCharCode(27);
const ESCAPES = new RegExp(`${ESCAPE}\\[[0-9;?]*[A-Za-z]|[${ESCAPE}\r\0]`, "g");
const NEWLINE = 10;
const SEARCHED = 8192; // lines at a time

/** {count, lines(first, count)}: `first` from 1; `lines` resolves to as many texts as there are. Rejects for a file that cannot be read. */
export async function openLog(file) {
  const blob = await unpacked(file);
  if (blob.size <= SMALL_BYTES) {
    const whole = parted(await blob.text());
    return { count: whole.length, lines: async (first, count) => whole.slice(first - 1, first - 1 + count) };
  }
  const { places, count } = await index(blob);
  return {
    count,
    lines: async (first, wanted) => {
      const from = Math.floor((first - 1) / EVERY);
      const until = Math.ceil((first - 1 + wanted) / EVERY);
      const found = parted(await blob.slice(places[from], places[until] ?? blob.size).text());
      const skipped = first - 1 - from * EVERY;
      return found.slice(skipped, skipped + wanted);
    },
  };
}

/** The number of the next line after `from` that holds `wanted`, whatever its case, going round at the end; null where there is none. */
export async function findLine(text, wanted, from, isOver) {
  const sought = wanted.toLowerCase();
  for (let passed = 0; passed < text.count && !isOver(); passed += SEARCHED) {
    const first = ((from + passed) % text.count) + 1;
    const lines = await text.lines(first, Math.min(SEARCHED, text.count - passed));
    const rest = first + SEARCHED - 1 > text.count ? await text.lines(1, Math.min(SEARCHED - lines.length, text.count - passed - lines.length)) : [];
    const found = [...lines, ...rest].findIndex((line) => line.toLowerCase().includes(sought));
    if (found >= 0) return ((first - 1 + found) % text.count) + 1;
  }
  return null;
}

/** As the commands read it: gzip unpacked, UTF-16 as UTF-8. */
async function unpacked(file) {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  if (head[0] === 0x1f && head[1] === 0x8b) {
    const most = Math.min(LARGEST_BYTES, Math.max(FREE_EXPANSION_BYTES, MOST_EXPANSION * file.size));
    return new Response(file.stream().pipeThrough(new DecompressionStream("gzip")).pipeThrough(bounded(most))).blob();
  }
  const wide = head[0] === 0xff && head[1] === 0xfe ? "utf-16le" : head[0] === 0xfe && head[1] === 0xff ? "utf-16be" : null;
  return wide ? new Blob([new TextDecoder(wide).decode(await file.arrayBuffer())]) : file;
}

/** Passes on what is read and fails past `most` bytes: an archive may unpack to more than any log. */
function bounded(most) {
  let size = 0;
  return new TransformStream({
    transform(chunk, out) {
      size += chunk.length;
      if (size > most) out.error(new Error("unpacks to more than logs do"));
      else out.enqueue(chunk);
    },
  });
}

async function index(blob) {
  const places = [0];
  const reader = blob.stream().getReader();
  let at = 0;
  let count = 0;
  let last = NEWLINE;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (let found = value.indexOf(NEWLINE); found >= 0; found = value.indexOf(NEWLINE, found + 1)) {
      count += 1;
      if (count % EVERY === 0) places.push(at + found + 1);
    }
    at += value.length;
    last = value[value.length - 1];
  }
  return { places, count: last === NEWLINE ? count : count + 1 };
}

function parted(text) {
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines.map((line) => line.slice(0, LONGEST * 2).replace(ESCAPES, "").slice(0, LONGEST));
}
