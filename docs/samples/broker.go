// A broker in Go, with nothing but its standard library: it registers, follows the metadata log, and stops in order.
// docs/broker-protocol.md has the reason for each step.
//
//	go run broker.go CLUSTER_ID BROKER_ID CONTROLLER_URL...
package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

type object = map[string]any

var be, castagnoli = binary.BigEndian, crc32.MakeTable(crc32.Castagnoli)

// The record types that this broker knows, and the newest version of each.
var known = map[int]int{0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 0, 9: 0, 12: 0, 15: 0, 17: 0, 20: 0, 27: 0, 1000: 0, 1001: 0, 1002: 1,
	1003: 0, 1004: 0, 1005: 0, 1006: 0, 1007: 0, 1010: 0, 1011: 0}

type broker struct {
	urls                    []string // the controllers; the one that is asked is the first
	who                     object
	logDirs                 []any
	epoch                   int // -1: not registered
	previousEpoch           int
	offset, lastEpoch, crc  int  // the position: the end of the last frame applied
	online                  bool // whether the log has this broker's epoch, unfenced
	servesFrom              int  // the log must be applied up to here before the broker serves
	sessionTimeout, maxWait time.Duration
	answeredSent            time.Time // when the last answered poll was sent
	stopping                atomic.Bool
}

func main() {
	id, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	b := &broker{urls: os.Args[3:], epoch: -1, previousEpoch: -1, lastEpoch: -1, logDirs: []any{uuid()}}
	b.who = object{"cluster_id": os.Args[1], "broker_id": id, "incarnation_id": uuid()}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { <-signals; b.stopping.Store(true) }()
	for serving, done := false, false; !done; {
		if b.epoch < 0 {
			done = b.stopping.Load()
			b.register()
		} else {
			done = b.poll()
		}
		if serving != b.mayServe() {
			serving = !serving
			log.Printf("serving: %v, at offset %d", serving, b.offset)
		}
	}
}

// mayServe answers whether clients may be served now; ask it before each request of a client.
func (b *broker) mayServe() bool { return b.online && b.offset >= b.servesFrom && b.hasSession() }

func (b *broker) hasSession() bool {
	return time.Since(b.answeredSent) < b.sessionTimeout*99/100 // clocks may differ in pace by a percent
}

func (b *broker) register() {
	body := object{"endpoints": []any{[]any{"PLAINTEXT", "127.0.0.1", 9092, 0}}, "rack": nil, "log_dirs": b.logDirs,
		"features": []any{[]any{"metadata.version", 25, 30}, []any{"eligible.leader.replicas.version", 0, 1},
			[]any{"metaquorum.version", 1, 5}},
		"previous_broker_epoch": b.previousEpoch}
	if status, answer, _ := b.post("/v1/brokers/register", body, 3*time.Second); status == 200 {
		told := (&reader{answer}).value().(object)
		b.epoch, b.online, b.answeredSent = told["broker_epoch"].(int), false, time.Time{}
		b.sessionTimeout, b.maxWait = ms(told["session_timeout_ms"].(int)), ms(told["max_wait_ms"].(int))
	}
}

// poll asks for what follows the position, and answers whether the process may end.
func (b *broker) poll() bool {
	wait, sent := b.maxWait, time.Now()
	if b.stopping.Load() {
		wait = min(wait, 100*time.Millisecond)
	}
	if !b.hasSession() {
		wait = 0 // a parked poll would renew the session only once it is answered
	}
	status, answer, headers := b.post("/v1/metadata/fetch", object{"broker_epoch": b.epoch,
		"fetch_offset": b.offset, "last_epoch": b.lastEpoch, "last_crc": b.crc, "applied_offset": b.offset,
		"want_fence": false, "want_shut_down": b.stopping.Load(), "offline_log_dirs": []any{}, "cordoned_log_dirs": nil,
		"max_bytes": 1 << 20, "max_wait_ms": int(wait.Milliseconds())}, wait+b.sessionTimeout/6)
	if status != 200 {
		return false
	}
	end := 4 + int(be.Uint32(answer))
	head := (&reader{answer[4:end]}).value().(object)
	if !b.mayServe() || head["kind"] != "DELTA" {
		b.servesFrom = head["high_watermark"].(int) // its fencing may lie below
	}
	if timeout, err := strconv.Atoi(headers.Get("X-Session-Timeout-Ms")); err == nil {
		b.sessionTimeout = ms(timeout)
	}
	b.answeredSent = sent
	switch head["kind"] {
	case "DELTA":
		b.apply(answer[end:], false)
	case "IMAGE":
		b.install(head["snapshot"].(object))
	case "DIVERGING": // this broker keeps no cache: it begins again
		b.offset, b.lastEpoch, b.crc, b.online = 0, -1, 0, false
	}
	return head["should_shut_down"].(bool) && b.stopping.Load()
}

func (b *broker) install(offer object) {
	response, err := (&http.Client{Timeout: time.Minute}).Get(b.urls[0] + "/v1/metadata/snapshots/" + offer["id"].(string))
	if err != nil {
		return // the next poll is offered it again
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) == offer["sha256"] {
		b.online = false
		b.apply(data, true)
	}
}

// apply takes whole frames: of the log, or of a snapshot, which count from 0. At one that is damaged it stops.
func (b *broker) apply(data []byte, snapshot bool) {
	for len(data) >= 40 {
		end := 40 + int(be.Uint32(data[4:]))
		if be.Uint32(data) != 0x4D510100 || len(data) < end {
			return
		}
		crc := crc32.Update(crc32.Checksum(data[:36], castagnoli), castagnoli, data[40:end])
		base, previous := int(be.Uint64(data[8:])), int(be.Uint32(data[32:]))
		if crc != be.Uint32(data[36:]) || !snapshot && (base != b.offset || previous != b.crc) {
			return
		}
		for _, record := range (&reader{data[40:end]}).value().([]any)[1].([]any) {
			b.fold(record.([]any))
		}
		if !snapshot {
			b.offset, b.lastEpoch, b.crc = base+int(be.Uint32(data[16:])), int(be.Uint32(data[20:])), int(crc)
		}
		data = data[end:]
	}
}

// fold applies one record. A broker with messages keeps topics and partitions here, too.
func (b *broker) fold(record []any) {
	kind, fields := record[0].(int), record[2:]
	if newest, is := known[kind]; !is || record[1].(int) > newest {
		log.Fatalf("record type %d version %v is of another release", kind, record[1])
	}
	switch {
	case kind == 1002: // a snapshot's header: the position behind it
		b.offset, b.lastEpoch, b.crc = fields[1].(int), fields[2].(int), fields[4].(int)
	case kind == 0 && fields[0] == b.who["broker_id"]:
		b.online = fields[2] == b.epoch && !fields[6].(bool)
	case kind == 17 && fields[0] == b.who["broker_id"] && fields[2] != nil:
		b.online = fields[1] == b.epoch && !fields[2].(bool)
	case kind == 1 && fields[0] == b.who["broker_id"]:
		b.online = false
	}
}

// post sends a request and returns the answer. After any status but 200 the broker is ready to repeat it, or has ended.
func (b *broker) post(path string, body object, patience time.Duration) (int, []byte, http.Header) {
	for name, value := range b.who {
		body[name] = value
	}
	response, err := (&http.Client{Timeout: patience}).Post(b.urls[0]+path, "application/msgpack", bytes.NewReader(pack(nil, body)))
	if err == nil {
		defer response.Body.Close()
		answer, failed := io.ReadAll(response.Body)
		if failed == nil && response.StatusCode == 200 {
			return 200, answer, response.Header
		}
		if failed == nil && b.refused(answer, response.Header.Get("X-Controller")) {
			return response.StatusCode, nil, nil
		}
	}
	time.Sleep(50 * time.Millisecond)
	b.urls = append(b.urls[1:], b.urls[0])
	return 0, nil, nil
}

// refused does what an error asks for, and answers whether the same list of controllers may be asked at once.
func (b *broker) refused(answer []byte, leader string) bool {
	refusal, _ := (&reader{answer}).value().(object)
	switch refusal["error"] {
	case "NOT_CONTROLLER":
		if leader != "" {
			others := slices.DeleteFunc(b.urls, func(url string) bool { return url == leader })
			b.urls = append([]string{leader}, others...)
		}
		return leader != ""
	case "STALE_BROKER_EPOCH":
		b.previousEpoch, b.epoch, b.online = b.epoch, -1, false
	case "DUPLICATE_BROKER_REGISTRATION":
	default:
		if refusal["family"] == "Rejected" {
			log.Fatalf("%v: %v", refusal["error"], refusal["message"])
		}
	}
	return false
}

func uuid() []byte {
	id := make([]byte, 16)
	rand.Read(id)
	return id
}

func ms(count int) time.Duration { return time.Duration(count) * time.Millisecond }

// --- msgpack: what a controller sends, and enough to answer

func pack(to []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(to, 0xc0)
	case bool:
		return append(to, map[bool]byte{false: 0xc2, true: 0xc3}[v])
	case int:
		return be.AppendUint64(append(to, 0xd3), uint64(v))
	case string:
		return append(be.AppendUint16(append(to, 0xda), uint16(len(v))), v...)
	case []byte:
		return append(be.AppendUint16(append(to, 0xc5), uint16(len(v))), v...)
	case []any:
		to = be.AppendUint16(append(to, 0xdc), uint16(len(v)))
		for _, item := range v {
			to = pack(to, item)
		}
		return to
	case object:
		to = be.AppendUint16(append(to, 0xde), uint16(len(v)))
		for name, item := range v {
			to = pack(pack(to, name), item)
		}
		return to
	}
	panic("no form in msgpack")
}

type reader struct{ data []byte }

func (r *reader) take(n int) (part []byte) { part, r.data = r.data[:n], r.data[n:]; return }

func (r *reader) number(n int) (value int) {
	for _, b := range r.take(n) {
		value = value<<8 | int(b)
	}
	return
}

func (r *reader) list(n int) []any {
	items := make([]any, n)
	for at := range items {
		items[at] = r.value()
	}
	return items
}

func (r *reader) object(n int) object {
	fields := make(object, n)
	for range n {
		name, _ := r.value().(string)
		fields[name] = r.value()
	}
	return fields
}

func (r *reader) value() any {
	switch k := int(r.take(1)[0]); {
	case k < 0x80:
		return k
	case k < 0x90:
		return r.object(k & 15)
	case k < 0xa0:
		return r.list(k & 15)
	case k < 0xc0:
		return string(r.take(k & 31))
	case k == 0xc0:
		return nil
	case k <= 0xc3:
		return k == 0xc3
	case k <= 0xc6:
		return r.take(r.number(1 << (k - 0xc4)))
	case k >= 0xcc && k <= 0xcf:
		return r.number(1 << (k - 0xcc))
	case k >= 0xd0 && k <= 0xd3:
		unused := 64 - 8<<(k-0xd0)
		return r.number(1<<(k-0xd0)) << unused >> unused
	case k >= 0xd9 && k <= 0xdb:
		return string(r.take(r.number(1 << (k - 0xd9))))
	case k >= 0xdc && k <= 0xdd:
		return r.list(r.number(2 << (k - 0xdc)))
	case k >= 0xde && k <= 0xdf:
		return r.object(r.number(2 << (k - 0xde)))
	case k >= 0xe0:
		return k - 256
	}
	panic("no value of this protocol")
}
