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

// position is the end of a frame: the next offset, and the epoch and crc of that frame.
type position struct{ offset, lastEpoch, crc int64 }

// state is what the log says up to a position. A broker with messages keeps topics and partitions here, too.
type state struct {
	position
	snapshotEnd position      // of the snapshot that the state began with
	online      map[int]int64 // the epoch of each broker that is not fenced
}

func empty() state { return state{position: position{0, -1, 0}, online: map[int]int64{}} }

// ofSnapshot reads a file whose frames begin at 0. The position behind it is in its header.
func ofSnapshot(file []byte) state {
	s := empty()
	s.apply(file)
	s.position = s.snapshotEnd
	return s
}

// apply takes frames from the position on, up to a damaged one, which the next poll asks for again.
func (s *state) apply(frames []byte) {
	var header struct {
		Start, Size        uint32
		BaseOffset         int64
		RecordCount, Epoch uint32
		AppendedAtMs       int64
		PreviousCRC, CRC   uint32
	}
	for len(frames) >= 40 {
		must(binary.Decode(frames, binary.BigEndian, &header))
		end := 40 + int(header.Size)
		if header.Start != 0x4D510100 || end > len(frames) { // the magic, format 1, no flags
			return
		}
		crc := crc32.Update(crc32.Checksum(frames[:36], castagnoli), castagnoli, frames[40:end])
		if crc != header.CRC || header.BaseOffset != s.offset || int64(header.PreviousCRC) != s.crc {
			return
		}
		body := read[[]msgpack.RawMessage](frames[40:end])
		for _, record := range read[[][]msgpack.RawMessage](body[1]) {
			s.fold(record)
		}
		s.position = position{header.BaseOffset + int64(header.RecordCount), int64(header.Epoch), int64(crc)}
		frames = frames[end:]
	}
}

// fold applies a record: its type, its version, and its fields in order.
func (s *state) fold(record []msgpack.RawMessage) {
	kind, version := read[int](record[0]), read[int](record[1])
	if !slices.Contains(known, kind) || version > newest[kind] {
		log.Fatalf("record type %d, version %d, is of a later release", kind, version)
	}
	switch kind {
	case 0: // RegisterBroker
		s.setFenced(read[int](record[2]), read[int64](record[4]), read[*bool](record[8]))
	case 1: // UnregisterBroker
		delete(s.online, read[int](record[2]))
	case 17: // BrokerRegistrationChange
		s.setFenced(read[int](record[2]), read[int64](record[3]), read[*bool](record[4]))
	case 1002: // SnapshotHeader
		s.snapshotEnd = position{read[int64](record[3]), read[int64](record[4]), read[int64](record[6])}
	}
}

func (s *state) setFenced(broker int, epoch int64, fenced *bool) {
	if fenced != nil && *fenced {
		delete(s.online, broker)
	} else if fenced != nil { // nil: that did not change
		s.online[broker] = epoch
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
