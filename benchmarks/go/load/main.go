// Sends events of a fixed size over HTTP connections that are kept open, each waiting for an answer before its next request.
//
// With -rate the requests of all connections start at fixed times, whether or not earlier ones are answered.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/textproto"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var number atomic.Int64

// event appends an event of about so many bytes.
func event(buffer *bytes.Buffer, size int) {
	n, begun := number.Add(1), buffer.Len()
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	fmt.Fprintf(buffer, `{"id":%d,"user":"u%d","amount":%d.5,"kind":"Click","sent_at":%q,"page":{"url":"/p/%d","tags":["a","b"]},"rest":"`,
		n, rand.IntN(10_000), n%1000, now, n%100_000)
	for left := size - 2 - (buffer.Len() - begun); left > 0; left -= 64 {
		buffer.WriteString(strings.Repeat("x", min(left, 64)))
	}
	buffer.WriteString(`"}`)
}

func request(path string, size, batch int) []byte {
	var body, whole bytes.Buffer
	if batch > 1 {
		body.WriteByte('[')
	}
	for i := range batch {
		if i > 0 {
			body.WriteByte(',')
		}
		event(&body, size)
	}
	if batch > 1 {
		body.WriteByte(']')
	}
	fmt.Fprintf(&whole, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, body.Len())
	whole.Write(body.Bytes())
	return whole.Bytes()
}

// answer reads a response and returns its status.
func answer(reader *bufio.Reader) (int, error) {
	text := textproto.NewReader(reader)
	line, err := text.ReadLine()
	if err != nil {
		return 0, err
	}
	headers, err := text.ReadMIMEHeader()
	if err != nil {
		return 0, err
	}
	length, _ := strconv.Atoi(headers.Get("Content-Length"))
	_, err = io.CopyN(io.Discard, reader, int64(length))
	status, _ := strconv.Atoi(line[9:12])
	return status, err
}

func main() {
	address := flag.String("address", "127.0.0.1:8426", "where the server is")
	path := flag.String("path", "/api/v1/events/clicks", "where it takes events")
	connections := flag.Int("connections", 64, "open at once")
	size, batch := flag.Int("size", 1024, "bytes of an event"), flag.Int("batch", 1, "events of a request")
	seconds := flag.Float64("seconds", 5, "how long")
	rate := flag.Float64("rate", 0, "events per second; 0 for as many as are answered")
	fresh := flag.Bool("fresh", false, "make each request anew, with the time of now")
	flag.Parse()
	var times []float64
	var lock sync.Mutex
	var refused, started atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	until := begun.Add(time.Duration(*seconds * 1e9))
	for range *connections {
		all.Add(1)
		go func() {
			defer all.Done()
			connection, err := net.Dial("tcp", *address)
			if err != nil {
				log.Fatal(err)
			}
			defer connection.Close()
			reader, own, body := bufio.NewReader(connection), []float64{}, request(*path, *size, *batch)
			for time.Now().Before(until) {
				at := time.Now()
				if *rate > 0 {
					turn := started.Add(1) - 1
					at = begun.Add(time.Duration(float64(turn) * float64(*batch) / *rate * 1e9))
					if at.After(until) {
						break
					}
					time.Sleep(time.Until(at))
				}
				if *fresh {
					body = request(*path, *size, *batch)
				}
				if _, err := connection.Write(body); err != nil {
					log.Fatal(err)
				}
				status, err := answer(reader)
				if err != nil {
					log.Fatal(err)
				}
				if status != 200 {
					refused.Add(1)
				} else {
					own = append(own, time.Since(at).Seconds())
				}
			}
			lock.Lock()
			times = append(times, own...)
			lock.Unlock()
		}()
	}
	all.Wait()
	took := time.Since(begun).Seconds()
	sort.Float64s(times)
	quantile := func(q float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return times[int(q*float64(len(times)-1))]
	}
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"requests": float64(len(times)), "events": float64(len(times) * *batch), "seconds": took,
		"refused": float64(refused.Load()), "p50": quantile(0.5), "p99": quantile(0.99),
	})
}
