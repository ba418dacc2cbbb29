package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Some examples need a database, and their modules have no driver. They run here, with a file
// beside them that links the driver of store/sqlite.
func TestExamplesWithADatabase(t *testing.T) {
	for folder, examples := range map[string][]string{
		"store": {"ExampleOpen", "ExampleStore_Replay", "ExampleStore_OnceHandler"},
		"otel":  {"ExampleTelemetry_WatchStore"},
	} {
		t.Run(folder, func(t *testing.T) {
			write := func(name string, text []byte) string {
				path := filepath.Join(t.TempDir(), name)
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			beside, err := filepath.Abs(filepath.Join(root, folder, "driver_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			driver := write("driver_test.go", []byte("package "+folder+"_test\n\nimport driver \"github.com/rehop/rehop/store/sqlite\"\n\nfunc init() { sqlite.Open = driver.Open }\n"))
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{beside: driver}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run=^Example",
				"-overlay="+write("overlay.json", replace), "github.com/rehop/rehop/"+folder).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, name := range examples {
				if !strings.Contains(string(out), "--- PASS: "+name+" ") {
					t.Errorf("%s did not run:\n%s", name, out)
				}
			}
		})
	}
}
