// Preact with templates: `html` makes elements of tagged text; what is put in is text, never markup.
import { h, render, Fragment } from "preact";
import htm from "htm";

export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { Fragment, h, render };
export const html = htm.bind(h);
