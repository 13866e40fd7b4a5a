// Voice and speed, which both halves of the page share.
import { onKey } from "./key.js";
import { byLanguage, loadVoices, nameOf } from "./voices.js";

const OTHER_VOICE = "other";

const element = (id) => document.getElementById(id);

/** What has been chosen, as a request wants it. */
export function manner() {
  const voice = element("voice").value;
  return {
    voice: voice === OTHER_VOICE ? element("blend").value.trim() : voice,
    speed: element("speed").valueAsNumber,
  };
}

async function showVoices() {
  const voices = await loadVoices(new URL("v1/audio/voices", document.baseURI));
  const groups = [...byLanguage(voices)].map(([language, ids]) => {
    const group = document.createElement("optgroup");
    group.label = language;
    group.append(...ids.map((id) => new Option(`${nameOf(id)} (${id})`, id, id === "af_heart", id === "af_heart")));
    return group;
  });
  element("voice").replaceChildren(...groups, new Option("Another, or a blend…", OTHER_VOICE));
}

element("voice").addEventListener("change", () => {
  element("blend-field").hidden = element("voice").value !== OTHER_VOICE;
});
element("speed").addEventListener("input", () => {
  element("speed-shown").textContent = element("speed").valueAsNumber.toFixed(2);
});
onKey(showVoices);
showVoices();
