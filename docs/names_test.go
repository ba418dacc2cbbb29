package docs

import (
	"go/scanner"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rehop/rehop/docs/internal/markdown"
)

// A page that names a file, a test or an identifier that is gone sends its reader nowhere.
func TestNamesInPagesExist(t *testing.T) {
	known, rules := identifiers(t)
	files := "\n" + strings.Join(tracked(t), "\n") + "\n"
	for _, p := range presentPages(t) {
		for _, fault := range unknownNames(p, known, rules, files) {
			t.Error(fault)
		}
	}
}

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	fileName   = regexp.MustCompile(`^[\w./-]+\.(?:css|go|html|js|json|md|mod|png|sh|sql|sum|svg|txt|ya?ml)$`)
	folderName = regexp.MustCompile(`^\w+(?:/[\w.-]+)+/?$`)
	ofATest    = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)[A-Z_]`)
	identifier = regexp.MustCompile(`^\*?[A-Za-z]\w*(?:\.[A-Za-z]\w*)*(?:\(\))?$`)
	ruleName   = regexp.MustCompile(`\brules? ((?:"[^"]+"(?:, | and )?)+)`)
	made       = map[string]bool{"release/api/released": true} // by the first release
	quoted     = regexp.MustCompile(`"([^"]+)"`)
)

// unknownNames returns what a page names and the repository does not have. A file may be
// named without its folder; a path that begins with a folder of the root is looked for
// there. An identifier is looked for if it is a test's, or if the page is a DESIGN.md.
func unknownNames(p markdown.Page, known map[string]bool, rules, files string) (faults []string) {
	fault := func(line int, what string) {
		faults = append(faults, p.Path+":"+strconv.Itoa(line)+": there is no "+what)
	}
	design := path.Base(p.Path) == "DESIGN.md"
	fenced := false
	for i, line := range p.Lines {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			name := span[1]
			switch {
			case fileName.MatchString(name):
				if !strings.Contains(files, "\n"+name+"\n") && !strings.Contains(files, "/"+name+"\n") {
					fault(i+1, "file "+name)
				}
			case folderName.MatchString(name) && strings.Contains(files, "\n"+name[:strings.Index(name, "/")+1]):
				if !strings.Contains(files, "\n"+strings.TrimSuffix(name, "/")+"/") && !strings.Contains(files, "\n"+name+"\n") && !made[name] {
					fault(i+1, "folder "+name)
				}
			case identifier.MatchString(name) && (design && name != strings.ToLower(name) || ofATest.MatchString(name)):
				for _, word := range strings.Split(strings.Trim(name, "*()"), ".") {
					if !known[word] {
						fault(i+1, "identifier "+name)
						break
					}
				}
			}
		}
		for _, list := range ruleName.FindAllStringSubmatch(line, -1) {
			for _, rule := range quoted.FindAllStringSubmatch(list[1], -1) {
				if text := strings.TrimRight(strings.TrimSuffix(rule[1], "..."), " ,"); design && !strings.Contains(rules, `"`+text) {
					fault(i+1, "rule "+rule[1])
				}
			}
		}
	}
	return faults
}

// identifiers returns the words of all Go files of the repository, and the text of the
// conformance suite.
func identifiers(t *testing.T) (known map[string]bool, rules string) {
	t.Helper()
	known = map[string]bool{}
	var suite strings.Builder
	for _, name := range tracked(t, "*.go") {
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "integration/conformance/") {
			suite.Write(source)
		}
		files := token.NewFileSet()
		var s scanner.Scanner
		s.Init(files.AddFile(name, -1, len(source)), source, nil, 0)
		for {
			_, tok, text := s.Scan()
			if tok == token.EOF {
				break
			}
			if tok == token.IDENT {
				known[text] = true
			}
		}
	}
	return known, suite.String()
}
