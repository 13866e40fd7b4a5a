// Text as a writer produces it and as a voice speaks it.

const LONGEST_TOKEN = 12; // code points; scripts without spaces would be one word otherwise
const LOOK_AHEAD = 200; // UTF-16 units; a word that is not near is a word that was spoken another way

/** Cut a text as a language model writes it: a word with the space before it. Joined, they are the text. */
export function tokens(text) {
  return text.match(new RegExp(`\\s*\\S{1,${LONGEST_TOKEN}}(?:\\s+$)?|\\s+`, "gu")) ?? [];
}

/** Where a spoken word stands in the text not yet spoken. Line breaks may have become spaces on the way.
 *  @returns {[number, number] | null} its start and end */
export function placeOf(word, text) {
  const pattern = word
    .trim()
    .split(/\s+/)
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .join("\\s+");
  const found = pattern && new RegExp(pattern, "u").exec(text);
  return found && found.index <= LOOK_AHEAD ? [found.index, found.index + found[0].length] : null;
}

/** The last of `timed` (`{start_s, end_s}`, in order) that has begun at `position_s` and is not over; -1: none. */
export function wordAt(timed, position_s) {
  const index = timed.findLastIndex(({ start_s }) => start_s <= position_s);
  return index >= 0 && position_s < timed[index].end_s ? index : -1;
}
