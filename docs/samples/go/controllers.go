package main

import (
	"bytes"
	"cmp"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

type object = map[string]any

// controllers are asked one at a time: the leader, once one of them names it.
type controllers struct {
	urls []string
	url  string // of the one that is asked
	turn int    // how many were asked without success
}

// post returns the answer with status 200 and its headers. Without one it waits, and returns the name of the error, if there
// is one: the caller acts on it, or repeats its request, which then goes to the controller that may answer it.
func (c *controllers) post(path string, patienceMs int64, body object) ([]byte, http.Header, any) {
	client := http.Client{Timeout: time.Duration(patienceMs) * time.Millisecond}
	response, err := client.Post(c.url+path, "application/msgpack", bytes.NewReader(must(msgpack.Marshal(body))))
	var refusal object // empty where no controller answered
	var leader string
	if err == nil {
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode == http.StatusOK {
			return answer, response.Header, nil
		}
		msgpack.Unmarshal(answer, &refusal)
		leader = response.Header.Get("X-Controller")
	}
	time.Sleep(50 * time.Millisecond)
	switch refusal["error"] {
	case "STALE_BROKER_EPOCH", "DUPLICATE_BROKER_REGISTRATION", "THROTTLING_QUOTA_EXCEEDED": // of the right controller
	default:
		if refusal["family"] == "Rejected" {
			log.Fatalf("%v: %v", refusal["error"], refusal["message"])
		}
		c.turn++
		c.url = cmp.Or(leader, c.urls[c.turn%len(c.urls)])
	}
	return nil, nil, refusal["error"]
}

// snapshot returns a file, or what came of it.
func (c *controllers) snapshot(id string) []byte {
	client := http.Client{Timeout: time.Minute}
	response, err := client.Get(c.url + "/v1/metadata/snapshots/" + id)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	file, _ := io.ReadAll(response.Body)
	return file
}
