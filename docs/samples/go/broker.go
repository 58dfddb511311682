// A broker without messages: it registers, follows the metadata log, comes back after fencing, and stops in order.
// docs/broker-protocol.md has the reason for each step. controllers.go sends requests, and state.go reads the log.
package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

type broker struct {
	controllers
	state                       // what the log says up to the position
	id                          int
	ids                         object // every request has them
	registered                  bool
	epoch, sessionMs, maxWaitMs int64     // of the newest registration
	answeredSent                time.Time // when the last answered poll was sent
	servesFrom                  int64     // a fencing may lie below this offset
}

func main() {
	id, urls, incarnation := must(strconv.Atoi(os.Args[2])), os.Args[3:], make([]byte, 16)
	rand.Read(incarnation)
	ids := object{"cluster_id": os.Args[1], "broker_id": id, "incarnation_id": incarnation}
	b := &broker{controllers: controllers{urls: urls, url: urls[0]}, state: empty(), id: id, ids: ids, epoch: -1}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	for b.registered || len(stop) == 0 {
		if !b.registered {
			b.register()
		} else if b.poll(len(stop) > 0) {
			return
		}
	}
}

// register asks for an epoch. The position stays: a process that runs on has lost nothing.
func (b *broker) register() {
	body := object{
		"previous_broker_epoch": b.epoch,
		"rack":                  nil,
		"endpoints":             [][]any{{"PLAINTEXT", "127.0.0.1", 9092, 0}},
		"log_dirs":              [][]byte{fmt.Appendf(nil, "log dir %08d", b.id)}, // 16 bytes, of the directory for good
		"features": [][]any{{"metadata.version", 25, 30}, {"eligible.leader.replicas.version", 0, 1},
			{"metaquorum.version", 1, 5}},
	}
	maps.Copy(body, b.ids)
	if answer, _, _ := b.post("/v1/brokers/register", 3000, body); answer != nil {
		granted := read[fields](answer)
		b.epoch, b.registered = read[int64](granted["broker_epoch"]), true
		b.sessionMs, b.maxWaitMs = read[int64](granted["session_timeout_ms"]), read[int64](granted["max_wait_ms"])
		b.answeredSent = time.Time{} // the session begins with the first poll
	}
}

// poll asks for what follows the position, and is the heartbeat. It returns whether the process may end.
func (b *broker) poll(wantsEnd bool) bool {
	sent, waitMs := time.Now(), b.maxWaitMs
	if wantsEnd {
		waitMs = 100
	} else if !b.hasSession() { // a parked poll would begin one only once it is answered
		waitMs = 0
	}
	body := object{
		"broker_epoch": b.epoch, "fetch_offset": b.offset, "last_epoch": b.lastEpoch, "last_crc": b.crc,
		"applied_offset": b.offset, "want_fence": false, "want_shut_down": wantsEnd, "max_wait_ms": waitMs,
		"max_bytes": 1 << 20, "offline_log_dirs": []any{}, "cordoned_log_dirs": nil,
	}
	maps.Copy(body, b.ids)
	answer, headers, refusal := b.post("/v1/metadata/fetch", waitMs+b.sessionMs/6, body)
	if answer == nil { // after this one error: register again
		b.registered = refusal != "STALE_BROKER_EPOCH"
		return false
	}
	end := 4 + binary.BigEndian.Uint32(answer)
	head := read[fields](answer[4:end])
	kind := read[string](head["kind"])
	if !b.mayServe() || kind != "DELTA" {
		b.servesFrom = read[int64](head["high_watermark"])
	}
	if newest, err := strconv.ParseInt(headers.Get("X-Session-Timeout-Ms"), 10, 64); err == nil {
		b.sessionMs = newest
	}
	b.answeredSent = sent
	switch kind {
	case "DELTA": // no frames: nothing is new
		b.apply(answer[end:])
	case "IMAGE": // the log does not reach back to the position. Without a whole file, the next poll gets the offer again
		offer := read[fields](head["snapshot"])
		file := b.snapshot(read[string](offer["id"]))
		if fmt.Sprintf("%x", sha256.Sum256(file)) == read[string](offer["sha256"]) {
			b.state = ofSnapshot(file)
		}
	case "DIVERGING": // of another history: all again, since no older position is kept
		b.state = empty()
	}
	return wantsEnd && read[bool](head["should_shut_down"])
}

// mayServe returns whether clients may be served now. A broker with messages asks before each request of a client.
func (b *broker) mayServe() bool {
	return b.online[b.id] == b.epoch && b.offset >= b.servesFrom && b.hasSession()
}

// hasSession compares with 99 % of the session: two clocks may differ in pace by one.
func (b *broker) hasSession() bool {
	return time.Since(b.answeredSent).Milliseconds() < b.sessionMs*99/100
}
