// What a tab shows, as an address that can be shared: #plan/<compressed JSON>. Nothing of it reaches a server.
import { useEffect, useState } from "preact/hooks";

/** The tab and its state in the address: {tab, state}; state is null where there is none, or none that can be read. */
async function readAddress() {
  const [tab, packed] = location.hash.slice(1).split("/");
  try {
    return { tab, state: packed ? JSON.parse(await unpacked(packed)) : null };
  } catch {
    return { tab, state: null };
  }
}

/** An address that shows `state` in `tab`. */
export async function addressOf(tab, state) {
  return `${location.origin}${location.pathname}#${tab}/${await packed(JSON.stringify(state))}`;
}

/** Say in the address what is shown, without a step in the history. */
export async function writeAddress(tab, state) {
  history.replaceState(null, "", await addressOf(tab, state));
}

/** {tab, state} as the address has them, and anew when it changes. */
export function useAddress() {
  const [found, told] = useState(null);
  useEffect(() => {
    const read = () => readAddress().then(told);
    read();
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  return found;
}

async function packed(text) {
  const data = await through(new Blob([text]), new CompressionStream("deflate-raw"));
  return btoa(String.fromCharCode(...new Uint8Array(data))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

const LARGEST_STATE = 1_000_000;
const PIECE_BYTES = 1024;

/** Read piece by piece: of an address that unpacks to too much no more is unpacked. */
async function unpacked(text) {
  const data = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (sign) => sign.charCodeAt(0));
  const reader = pieceByPiece(data).pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream()).getReader();
  let whole = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return whole;
    whole += value;
    if (whole.length > LARGEST_STATE) {
      reader.cancel().catch(() => {});
      throw new Error("too large");
    }
  }
}

/** A piece unpacks whole, to a thousand times as much. */
function pieceByPiece(data) {
  let at = 0;
  return new ReadableStream({
    pull(stream) {
      if (at < data.length) stream.enqueue(data.subarray(at, at + PIECE_BYTES));
      else stream.close();
      at += PIECE_BYTES;
    },
  });
}

const through = (blob, stream) => new Response(blob.stream().pipeThrough(stream)).arrayBuffer();
