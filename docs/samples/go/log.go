package main

import (
	"encoding/binary"
	"hash/crc32"
	"log"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// The record types that this broker knows, all of version 0; those in newest have later versions, too.
var known = []int{0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 14, 15, 17, 18, 19, 20, 22, 26, 27,
	1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1010, 1011}
var newest = map[int]int{4: 1, 1002: 1}

type fields = map[string]msgpack.RawMessage

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
var u32, u64 = binary.BigEndian.Uint32, binary.BigEndian.Uint64

// A view is what the log says up to a position: the next offset, and the epoch and crc of the last frame. A broker with
// messages keeps topics and partitions here, too.
type view struct {
	offset, lastEpoch, crc int64
	online                 map[int]int64        // the epoch of each broker that is not fenced
	header                 []msgpack.RawMessage // the first record of a snapshot
}

func empty() view { return view{lastEpoch: -1, online: map[int]int64{}} }

// ofSnapshot reads a file whose frames begin at 0. The position behind it is in its header.
func ofSnapshot(file []byte) view {
	v := empty()
	v.apply(file)
	v.offset, v.lastEpoch, v.crc = read[int64](v.header[3]), read[int64](v.header[4]), read[int64](v.header[6])
	return v
}

// apply takes frames from the position on, up to a damaged one, which the next poll asks for again.
func (v *view) apply(frames []byte) {
	for len(frames) >= 40 {
		end := 40 + int(u32(frames[4:]))
		if u32(frames) != 0x4D510100 || end > len(frames) { // the magic, format 1, no flags
			return
		}
		crc := crc32.Update(crc32.Checksum(frames[:36], castagnoli), castagnoli, frames[40:end])
		if crc != u32(frames[36:]) || int64(u64(frames[8:])) != v.offset || int64(u32(frames[32:])) != v.crc {
			return
		}
		for _, record := range read[[][]msgpack.RawMessage](read[[]msgpack.RawMessage](frames[40:end])[1]) {
			v.fold(record)
		}
		v.offset, v.lastEpoch, v.crc = v.offset+int64(u32(frames[16:])), int64(u32(frames[20:])), int64(crc)
		frames = frames[end:]
	}
}

// fold applies a record: its type, its version, and its fields in order.
func (v *view) fold(record []msgpack.RawMessage) {
	kind, version := read[int](record[0]), read[int](record[1])
	if !slices.Contains(known, kind) || version > newest[kind] {
		log.Fatalf("record type %d, version %d, is of a later release", kind, version)
	}
	switch kind {
	case 0: // RegisterBroker
		v.setFenced(read[int](record[2]), read[int64](record[4]), read[*bool](record[8]))
	case 1: // UnregisterBroker
		delete(v.online, read[int](record[2]))
	case 17: // BrokerRegistrationChange
		v.setFenced(read[int](record[2]), read[int64](record[3]), read[*bool](record[4]))
	case 1002: // SnapshotHeader
		v.header = record
	}
}

func (v *view) setFenced(broker int, epoch int64, fenced *bool) {
	if fenced != nil && *fenced {
		delete(v.online, broker)
	} else if fenced != nil { // nil: that did not change
		v.online[broker] = epoch
	}
}

// read returns a value of msgpack as a T. The library makes an empty message of nil.
func read[T any](message []byte) (value T) {
	if len(message) > 0 {
		must(0, msgpack.Unmarshal(message, &value))
	}
	return value
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
