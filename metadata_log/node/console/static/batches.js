// Lines of the log, put together as the batches in which they were written.

/** `hasGaps`: lines of some types were left out, so those of one batch need not follow each other. */
export function grouped(lines, hasGaps = false) {
  const found = [];
  let last = null, key = null;
  for (const line of lines) {
    if (line.offset === undefined) continue;
    const own = JSON.stringify([line.controller_epoch, line.time_ms, line.actor, line.request_id, line.operation, line.cause]);
    if (last === null || own !== key || (!hasGaps && line.offset !== last.end_offset)) {
      key = own;
      last = { key, offset: line.offset, end_offset: line.offset, controller_epoch: line.controller_epoch, time_ms: line.time_ms, actor: line.actor, operation: line.operation, cause: line.cause, types: {}, topics: [], brokers: [], lines: [] };
      found.push(last);
    }
    last.end_offset = line.offset + 1;
    last.types[line.type] = (last.types[line.type] ?? 0) + 1;
    if (line.type === "Topic" && last.topics.length < 8) last.topics.push(line.record.name);
    if (/Broker/.test(line.type) && last.brokers.length < 8) last.brokers.push(line.record.broker_id);
    if (last.lines.length < 200) last.lines.push(line);
  }
  return found;
}

/**
 * Batches that were written for the same reason, one after the other, as one: a fencing is written in parts. Newest first.
 * One `isPart` where one of them is: how many records it has is not known.
 */
export function joined(batches) {
  const found = [];
  for (const one of batches) {
    const last = found.at(-1), same = JSON.stringify([one.actor, one.operation, one.cause]);
    if (last?.same === same && one.cause) {
      last.batches += 1;
      last.first_offset = one.offset;
      last.isPart ||= one.isPart;
      for (const [type, count] of Object.entries(one.types)) last.types[type] = (last.types[type] ?? 0) + count;
      last.topics = [...new Set([...last.topics, ...(one.topics ?? [])])].slice(0, 8);
    } else found.push({ ...one, same, batches: 1, types: { ...one.types }, topics: one.topics ?? [] });
  }
  return found;
}

/** Put older batches behind newer ones, newest first; the one that both have a part of becomes one. `hasGaps`: as in `grouped`. */
export function continued(newer, older, hasGaps = false) {
  const last = newer.at(-1), next = older[0];
  if (!last || !next || last.key !== next.key || (!hasGaps && next.end_offset !== last.offset)) return [...newer, ...older];
  const types = { ...next.types };
  for (const [type, count] of Object.entries(last.types)) types[type] = (types[type] ?? 0) + count;
  const whole = { ...last, offset: next.offset, types, topics: [...new Set([...next.topics, ...last.topics])].slice(0, 8), lines: [...next.lines, ...last.lines].slice(0, 200) };
  return [...newer.slice(0, -1), whole, ...older.slice(1)];
}
