// Lines of the log, put together as the batches in which they were written.

export function grouped(lines) {
  const found = [];
  let last = null, key = null;
  for (const line of lines) {
    if (line.offset === undefined) continue;
    const own = JSON.stringify([line.controller_epoch, line.time_ms, line.actor, line.request_id, line.operation, line.cause]);
    if (last === null || own !== key || line.offset !== last.end_offset) {
      key = own;
      last = { offset: line.offset, end_offset: line.offset, controller_epoch: line.controller_epoch, time_ms: line.time_ms, actor: line.actor, operation: line.operation, cause: line.cause, types: {}, topics: [], brokers: [], lines: [] };
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
