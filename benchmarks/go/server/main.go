// The yardstick of the collector: the least that a compiled server does that answers once events are on disk.
//
// net/http; a body is checked to be an object or a list of objects; all requests that arrive during a sync are written
// together (length, checksum, body) and share the next one.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

type entry struct {
	body []byte
	done chan error
}

// count returns the number of events in a body.
func count(body []byte, isChecked bool) (int, error) {
	if !isChecked {
		return 1, nil
	}
	text := bytes.TrimSpace(body)
	if len(text) > 0 && text[0] == '{' {
		if !json.Valid(text) {
			return 0, errors.New("not JSON")
		}
		return 1, nil
	}
	var events []json.RawMessage
	if err := json.Unmarshal(text, &events); err != nil {
		return 0, err
	}
	for _, each := range events {
		if each[0] != '{' {
			return 0, errors.New("not an object")
		}
	}
	return len(events), nil
}

// commit writes what has arrived, syncs it, and answers; again and again.
func commit(file *os.File, arriving chan entry) {
	for first := range arriving {
		group, buffer := []entry{first}, bytes.Buffer{}
		for more := true; more; {
			select {
			case next := <-arriving:
				group = append(group, next)
			default:
				more = false
			}
		}
		for _, each := range group {
			var head [8]byte
			binary.LittleEndian.PutUint32(head[:4], crc32.ChecksumIEEE(each.body))
			binary.LittleEndian.PutUint32(head[4:], uint32(len(each.body)))
			buffer.Write(head[:])
			buffer.Write(each.body)
		}
		_, err := file.Write(buffer.Bytes())
		if err == nil {
			err = syscall.Fdatasync(int(file.Fd()))
		}
		for _, each := range group {
			each.done <- err
		}
	}
}

func main() {
	address := flag.String("address", "127.0.0.1:8427", "where it listens")
	directory := flag.String("dir", ".", "where it writes")
	unchecked := flag.Bool("unchecked", false, "store bodies without a look at them")
	flag.Parse()
	file, err := os.OpenFile(filepath.Join(*directory, "events.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	arriving := make(chan entry, 4096)
	go commit(file, arriving)
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /api/v1/events/{stream}", func(answer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, 8<<20))
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		events, err := count(body, !*unchecked)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		each := entry{body, make(chan error, 1)}
		arriving <- each
		if err := <-each.done; err != nil {
			http.Error(answer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(answer, `{"accepted":%d}`, events)
	})
	log.Fatal(http.ListenAndServe(*address, nil))
}
