// Cmd writes the generated files. Run it with go generate in otel.
package main

import (
	"log"
	"os"

	"github.com/rehop/rehop/otel/internal/generate"
)

func main() {
	docs, err := os.ReadFile(generate.Docs)
	if err != nil {
		log.Fatal(err)
	}
	files, err := generate.Files(string(docs))
	if err != nil {
		log.Fatal(err)
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
