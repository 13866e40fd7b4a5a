// Voices to choose from: the server's list, or the best known ones where it gives none.
import { askForKey, withKey } from "./key.js";

const WELL_KNOWN = ["af_heart", "af_bella", "af_nicole", "am_michael", "am_fenrir", "bf_emma", "bm_george"];

const LANGUAGES = {
  a: "American English",
  b: "British English",
  e: "Spanish",
  f: "French",
  h: "Hindi",
  i: "Italian",
  j: "Japanese",
  p: "Portuguese",
  z: "Chinese",
};

/** @returns {Promise<string[]>} voice ids of the model's own kind */
export async function loadVoices(url) {
  try {
    const response = await fetch(url, { headers: withKey() });
    if (response.status === 401) askForKey();
    const { voices } = await response.json();
    const ids = voices.map(({ id }) => id).filter((id) => /^[a-z][fm]_/.test(id));
    return ids.length ? ids : WELL_KNOWN;
  } catch {
    return WELL_KNOWN; // the server will say, in words, if it has none of them
  }
}

/** @returns {Map<string, string[]>} language to voice ids, in the order in which they came */
export function byLanguage(ids) {
  return Map.groupBy(ids, (id) => LANGUAGES[id[0]] ?? "Other languages");
}

/** `af_heart` is called "Heart". */
export function nameOf(id) {
  const name = id.slice(id.indexOf("_") + 1);
  return name.charAt(0).toUpperCase() + name.slice(1);
}
