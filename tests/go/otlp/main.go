// Reads one request of OTLP in its JSON form from standard input and says what the definitions of
// OpenTelemetry do not allow in it: otlp logs|traces|metrics
package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A request and what is stored of it have the same members.
var kinds = map[string]proto.Message{
	"logs":    &logs.LogsData{},
	"metrics": &metrics.MetricsData{},
	"traces":  &traces.TracesData{},
}

// The one thing in which OTLP differs from the JSON form of every other message: ids are hexadecimal.
var ids = map[string]int{"traceId": 16, "spanId": 8, "parentSpanId": 8}

func main() {
	if err := judge(os.Args[1], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(kind string, input io.Reader) error {
	decoder := json.NewDecoder(input)
	decoder.UseNumber()
	var found any
	if err := decoder.Decode(&found); err != nil {
		return err
	}
	if err := plain(found); err != nil {
		return err
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, kinds[kind]) // a member it does not know is an error
}

// plain writes ids as messages have them, wherever they stand.
func plain(found any) error {
	switch value := found.(type) {
	case []any:
		for _, each := range value {
			if err := plain(each); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, each := range value {
			size, isID := ids[name]
			if !isID {
				if err := plain(each); err != nil {
					return err
				}
				continue
			}
			raw, err := hex.DecodeString(fmt.Sprint(each))
			if err != nil || (len(raw) != size && !(name == "parentSpanId" && len(raw) == 0)) {
				return fmt.Errorf("%s is %v, and no id", name, each)
			}
			value[name] = base64.StdEncoding.EncodeToString(raw)
		}
	}
	return nil
}
