-- part: template
SELECT id, name, body, created_at, changed_at, archived_at FROM template

-- name: templates: by id
@part(template) WHERE id > :after AND archived_at IS NULL ORDER BY id LIMIT :limit

-- name: all_templates: by id
@part(template) WHERE id > :after ORDER BY id LIMIT :limit

-- name: templates_by_id
@part(template) WHERE id @in(ids)

-- name: templates_by_name: for each name the active template first, then the last archived one
@part(template) WHERE name @in(names) ORDER BY archived_at IS NOT NULL, archived_at DESC, id DESC

-- name: template_names
SELECT name FROM template WHERE archived_at IS NULL

-- name: add_template
INSERT INTO template (id, name, body, created_at, changed_at) VALUES (:id, :name, :body, :now, :now)

-- name: change_template
UPDATE template SET name = :name, body = :body, changed_at = :now WHERE id = :id

-- name: archive_template
UPDATE template SET archived_at = :at WHERE id = :id

-- name: old_templates: archived before then, and used by no stored job
SELECT id, name FROM template WHERE archived_at < :until
  AND NOT EXISTS (SELECT 1 FROM spec WHERE spec.template = template.id AND spec.template IS NOT NULL)

-- name: schedule_bodies
SELECT body FROM schedule

-- name: remove_templates
DELETE FROM template WHERE id @in(ids) AND archived_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM spec WHERE spec.template = template.id AND spec.template IS NOT NULL)
