// A broker without messages: it registers, follows the metadata log, comes back after fencing, and stops in order.
// docs/broker-protocol.md has the reason for each step; client.go asks the controllers, log.go reads the log.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

var (
	id                   = must(strconv.Atoi(os.Args[2]))
	controllers          = newClient(os.Args[1], id, os.Args[3:])
	state                = empty() // what the log says up to the position
	registered           bool
	epoch                int64 = -1 // of the newest registration
	sessionMs, maxWaitMs int64
	answeredSent         time.Time // when the last answered poll was sent
	servesFrom           int64     // a fencing may lie below this offset
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	for registered || len(stop) == 0 {
		if !registered {
			register()
		} else if poll(len(stop) > 0) {
			return
		}
	}
}

// register asks for an epoch. The position stays: a process that runs on has lost nothing.
func register() {
	answer, _, _ := controllers.post("/v1/brokers/register", 3000, object{
		"previous_broker_epoch": epoch, "rack": nil, "endpoints": [][]any{{"PLAINTEXT", "127.0.0.1", 9092, 0}},
		"log_dirs": [][]byte{fmt.Appendf(nil, "log dir %08d", id)}, // 16 bytes, of the directory for good
		"features": [][]any{{"metadata.version", 25, 30}, {"eligible.leader.replicas.version", 0, 1},
			{"metaquorum.version", 1, 5}, {"transaction.version", 0, 2}, {"group.version", 0, 1},
			{"share.version", 0, 1}, {"streams.version", 0, 1}}, // any level: it has no messages
	})
	if registered = answer != nil; registered {
		granted := read[fields](answer)
		epoch, maxWaitMs = read[int64](granted["broker_epoch"]), read[int64](granted["max_wait_ms"])
		sessionMs, answeredSent = read[int64](granted["session_timeout_ms"]), time.Time{} // the first poll begins it
	}
}

// poll asks for what follows the position, and is the heartbeat. It returns whether the process may end.
func poll(wantsEnd bool) bool {
	sent, waitMs := time.Now(), maxWaitMs
	if wantsEnd {
		waitMs = 100
	} else if !hasSession() { // a parked poll would begin one only once it is answered
		waitMs = 0
	}
	answer, headers, refusal := controllers.post("/v1/metadata/fetch", waitMs+sessionMs/6, object{
		"broker_epoch": epoch, "fetch_offset": state.offset, "last_epoch": state.lastEpoch, "last_crc": state.crc,
		"applied_offset": state.offset, "want_fence": false, "want_shut_down": wantsEnd, "max_wait_ms": waitMs,
		"max_bytes": 1 << 20, "offline_log_dirs": []any{}, "cordoned_log_dirs": nil,
	})
	if answer == nil { // after this one error: register again
		registered = refusal != "STALE_BROKER_EPOCH"
		return false
	}
	end := 4 + binary.BigEndian.Uint32(answer)
	head := read[fields](answer[4:end])
	kind := read[string](head["kind"])
	if !mayServe() || kind != "DELTA" {
		servesFrom = read[int64](head["high_watermark"])
	}
	sessionMs, answeredSent = must(strconv.ParseInt(headers.Get("X-Session-Timeout-Ms"), 10, 64)), sent
	switch kind {
	case "DELTA": // no frames: nothing is new
		state.apply(answer[end:])
	case "IMAGE": // the log does not reach back to the position. Without a whole file, the next poll gets the offer again
		offer := read[fields](head["snapshot"])
		file := controllers.get("/v1/metadata/snapshots/" + read[string](offer["id"]))
		if fmt.Sprintf("%x", sha256.Sum256(file)) == read[string](offer["sha256"]) {
			state = ofSnapshot(file)
		}
	case "DIVERGING": // of another history: all again, since no older position is kept
		state = empty()
	}
	return wantsEnd && read[bool](head["should_shut_down"])
}

// mayServe returns whether clients may be served now. A broker with messages asks before each request of a client.
func mayServe() bool { return state.online[id] == epoch && state.offset >= servesFrom && hasSession() }

// hasSession compares with 99 % of the session: two clocks may differ in pace by one.
func hasSession() bool { return time.Since(answeredSent).Milliseconds() < sessionMs*99/100 }
