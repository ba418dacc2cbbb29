package store

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/v0")

// TestSchemaOfTheRelease: the statements that make the tables are those of the release. A
// store that another version has made has these tables, and programs of both versions use
// it at a time. Until v0.1.0 is released, -update writes a change. After it a change needs
// another schemaVersion and a folder of its own; integration/store opens and forwards the
// stores of all folders.
func TestSchemaOfTheRelease(t *testing.T) {
	for name, d := range map[string]Dialect{"sqlite": SQLite, "mysql": MySQL, "postgresql": PostgreSQL} {
		statements := slices.Concat([]string{versionsSchema("rehop_letters_schema")}, schema(d, "rehop_letters", "{collation}"), inboxSchema(d, "rehop_letters", "{collation}"),
			[]string{fmt.Sprintf("INSERT INTO rehop_letters_schema (version) VALUES (%d)", schemaVersion)})
		text := strings.Join(statements, ";\n") + ";\n"
		file := filepath.Join("testdata", "v0", name+".sql")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("the schema on %s is\n%s\nand the release has\n%s\nTestSchemaOfTheRelease says what to do", name, text, want)
		}
	}
}
