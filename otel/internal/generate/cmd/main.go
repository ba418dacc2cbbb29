// Cmd writes the generated files. Run it with go generate in otel. With -check it writes
// nothing, and fails if a file is not the one that it would write.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/rehop/rehop/otel/internal/generate"
)

func main() {
	compare := flag.Bool("check", false, "compare the files, and write nothing")
	flag.Parse()
	files, err := generate.Files()
	check(err)
	docs, err := os.ReadFile(generate.Docs)
	check(err)
	files[generate.Docs], err = generate.Page(string(docs))
	check(err)
	for path, text := range files {
		if !*compare {
			check(os.WriteFile(path, []byte(text), 0o644))
			continue
		}
		have, err := os.ReadFile(path)
		check(err)
		if string(have) != text {
			log.Fatalf("%s is not the one that go generate writes in otel", path)
		}
	}
}

// check ends the program at the first error.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
