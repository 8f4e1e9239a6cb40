// Loads a dashboard from standard input as Grafana defines it, and says what it does not know in it.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	kinds := cog.NewRuntime()
	kinds.RegisterPanelcfgVariant(bargauge.VariantConfig())
	kinds.RegisterPanelcfgVariant(table.VariantConfig())
	kinds.RegisterPanelcfgVariant(timeseries.VariantConfig())
	kinds.RegisterDataqueryVariant(prometheus.VariantConfig())
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = new(dashboard.Dashboard).UnmarshalJSONStrict(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
