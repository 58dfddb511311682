package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"io"
	"log"
	"maps"
	"net/http"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

type object = map[string]any

// A client asks the controllers, one at a time, in the name of one process of one broker.
type client struct {
	ids  object // every request has them
	urls []string
	url  string // of the controller that is asked
	turn int    // how many were asked without success
}

func newClient(clusterID string, brokerID int, urls []string) *client {
	incarnation := make([]byte, 16)
	rand.Read(incarnation)
	ids := object{"cluster_id": clusterID, "broker_id": brokerID, "incarnation_id": incarnation}
	return &client{ids: ids, urls: urls, url: urls[0]}
}

// post returns the answer with status 200 and its headers. Without one it waits, and returns the name of the error, if there
// is one: the caller acts on it, or repeats its request, which then goes to the controller that may answer it.
func (c *client) post(path string, patienceMs int64, body object) (answer []byte, headers http.Header, refusal any) {
	maps.Copy(body, c.ids)
	patient, told := http.Client{Timeout: time.Duration(patienceMs) * time.Millisecond}, object{}
	response, err := patient.Post(c.url+path, "application/msgpack", bytes.NewReader(must(msgpack.Marshal(body))))
	if err == nil {
		defer response.Body.Close()
		headers = response.Header
		if answer, err = io.ReadAll(response.Body); err == nil && response.StatusCode == http.StatusOK {
			return answer, headers, nil
		}
		msgpack.Unmarshal(answer, &told) // nothing, where it is not of a controller
	}
	time.Sleep(50 * time.Millisecond)
	switch told["error"] {
	case "STALE_BROKER_EPOCH", "DUPLICATE_BROKER_REGISTRATION", "THROTTLING_QUOTA_EXCEEDED": // of the right controller
	default:
		if told["family"] == "Rejected" {
			log.Fatalf("%v: %v", told["error"], told["message"])
		}
		c.turn++
		c.url = cmp.Or(headers.Get("X-Controller"), c.urls[c.turn%len(c.urls)])
	}
	return nil, nil, told["error"]
}

// get returns what the controller that answered last has there, or as much of it as came.
func (c *client) get(path string) (file []byte) {
	patient := http.Client{Timeout: time.Minute}
	if response, err := patient.Get(c.url + path); err == nil {
		defer response.Body.Close()
		file, _ = io.ReadAll(response.Body)
	}
	return file
}
