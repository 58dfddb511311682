// Changes of the quorum's voters: one is added, removed, or votes from another disk.
import { proposed, trial } from "./changes.js";
import { field, h, notice, number } from "./dom.js";

const majority = (count) => Math.floor(count / 2) + 1;

function remains(count) {
  const needed = majority(count);
  return h("p", {}, `${number(count)} voters then; the quorum goes on while ${number(needed)} of them run, so it bears the loss of ${number(count - needed)}.`);
}

/** Let an observer vote; its row, or null to type in what it is. */
export function addVoter(context, shown, one) {
  const id = h("input", { type: "number", min: 0, required: true, value: one?.id ?? "" });
  const directory = h("input", { required: true, value: one?.directory_id ?? "", pattern: "[A-Za-z0-9_\\-]{22}", title: "22 characters, as the node prints them at its start" });
  const raft = h("input", { required: true, value: one?.address ?? "", placeholder: "host:port" });
  const body = (isTrial) => ({ id: Number(id.value), directory_id: directory.value, raft: raft.value, ...(isTrial ? { validate_only: true } : {}) });
  proposed(context, {
    title: one ? `Let controller ${one.id} vote` : "Add a voter",
    fields: [field("controller", id), field("id of its directory", directory), field("its Raft address", raft)],
    foresee: async () => [await trial("POST", "/v1/quorum/voters", body(true)), remains(shown.voters.length + 1), h("p", { class: "muted" }, "Add it to [[voters]] of the settings files as well.")],
    request: () => ["POST", "/v1/quorum/voters", body(false)],
  });
}

const path = (one, isTrial) => `/v1/quorum/voters/${one.id}?directory_id=${encodeURIComponent(one.directory_id)}${isTrial ? "&validate_only=true" : ""}`;

export function removeVoter(context, shown, one) {
  proposed(context, {
    title: `Take the vote of controller ${one.id}`,
    danger: true,
    foresee: async () => [
      one.id === shown.leader_id ? notice("warn", "It is the leader: another one is elected first, and writes wait for that.") : null,
      await trial("DELETE", path(one, true)), remains(shown.voters.length - 1),
      h("p", { class: "muted" }, "If it runs it follows as an observer. Take it out of [[voters]] of the settings files."),
    ],
    request: () => ["DELETE", path(one, false)],
  });
}

/** Let the new disk of a controller vote in place of its old one: two changes, the second of them once the first is done. */
export function replaceVoter(context, old, now) {
  const body = (more) => ({ id: now.id, directory_id: now.directory_id, raft: now.address, ...more });
  proposed(context, {
    title: `Replace the disk of controller ${now.id}`,
    danger: true,
    foresee: async () => [
      h("p", {}, "Directory ", h("code", {}, old.directory_id), " votes no more, then ", h("code", {}, now.directory_id), " votes. Between the two the quorum has one voter fewer."),
      await trial("DELETE", path(old, true)),
      await trial("POST", "/v1/quorum/voters", body({ validate_only: true, replaces: old.directory_id })),
    ],
    requests: () => [["DELETE", path(old, false)], ["POST", "/v1/quorum/voters", body({})]],
  });
}

/** The rows of a controller that votes with one directory and runs with another. */
export function replaceable(shown) {
  return shown.observers.flatMap((now) => shown.voters.filter((old) => old.id === now.id && old.directory_id !== now.directory_id).map((old) => ({ old, now })));
}

