// What `argo lint --offline` says of files: argolint FILE…
//
// The program `argo` itself cannot be built from its module: it carries the pages of Argo's server, which
// are made before a release and lie in no module. Its linter is a package of its own.
package main

import (
	"fmt"
	"os"

	"github.com/argoproj/argo-workflows/v3/cmd/argo/lint"
	"github.com/argoproj/argo-workflows/v3/pkg/apiclient"
	wf "github.com/argoproj/argo-workflows/v3/pkg/apis/workflow"
)

func main() {
	files := os.Args[1:]
	ctx, client, err := apiclient.NewClientFromOpts(apiclient.Opts{Offline: true, OfflineFiles: files})
	if err == nil {
		kinds := []string{wf.WorkflowPlural, wf.WorkflowTemplatePlural, wf.CronWorkflowPlural, wf.ClusterWorkflowTemplatePlural}
		options := lint.LintOptions{Files: files, Strict: true, Printer: os.Stdout}
		err = lint.RunLint(ctx, client, kinds, "simple", true, options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
